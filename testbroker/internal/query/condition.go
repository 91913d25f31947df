package query

import (
	"slices"
	"strings"
)

// An expression has a value for each document.
type expression func(Document) value

func (p *parser) nested(parse func() (expression, error)) (expression, error) {
	if p.depth == maxDepth {
		return nil, p.errorf(p.token.at, "the query nests more than %d levels deep", maxDepth)
	}
	p.depth++
	defer func() { p.depth-- }()
	return parse()
}

func (p *parser) condition() (expression, error) {
	return p.nested(func() (expression, error) {
		return p.chain("OR", true, func() (expression, error) { return p.chain("AND", false, p.not) })
	})
}

// chain parses operands with a keyword between them. The value of one operand that equals decisive
// is that of the whole.
func (p *parser) chain(keyword string, decisive bool, operand func() (expression, error)) (expression, error) {
	first, err := operand()
	if err != nil {
		return nil, err
	}
	all := []expression{first}
	for {
		more, err := p.accept(keyword)
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		next, err := operand()
		if err != nil {
			return nil, err
		}
		all = append(all, next)
	}
	if len(all) == 1 {
		return first, nil
	}
	return func(d Document) value {
		result := boolean(!decisive)
		for _, e := range all {
			switch v := e(d); {
			case v.kind != typeBool:
				result = value{}
			case v.truth == decisive:
				return v
			}
		}
		return result
	}, nil
}

func (p *parser) not() (expression, error) {
	negate, err := p.accept("NOT")
	if err != nil {
		return nil, err
	}
	if !negate {
		return p.comparison()
	}
	operand, err := p.nested(p.not)
	if err != nil {
		return nil, err
	}
	return func(d Document) value {
		v := operand(d)
		if v.kind != typeBool {
			return value{}
		}
		return boolean(!v.truth)
	}, nil
}

// comparisons maps the operators to the results of compare that they accept.
var comparisons = map[string][]order{
	"=": {equal}, "!=": {less, greater, different}, "<>": {less, greater, different},
	"<": {less}, "<=": {less, equal}, ">": {greater}, ">=": {greater, equal},
}

// unordered are the operators that accept values of different types.
var unordered = []string{"=", "!=", "<>"}

func (p *parser) comparison() (expression, error) {
	left, err := p.sum()
	if err != nil {
		return nil, err
	}
	switch operator := p.token; {
	case operator.kind == kindSign && comparisons[operator.text] != nil:
		if err := p.advance(); err != nil {
			return nil, err
		}
		right, err := p.sum()
		if err != nil {
			return nil, err
		}
		return compared(left, operator.text, right), nil
	case operator.is("IN"), operator.is("NIN"):
		if err := p.advance(); err != nil {
			return nil, err
		}
		list, err := p.literals()
		if err != nil {
			return nil, err
		}
		return member(left, list, operator.is("IN")), nil
	case operator.is("NOT"):
		return nil, p.unexpected("an operator; \"not in\" is NIN")
	}
	return left, nil
}

func compared(left expression, operator string, right expression) expression {
	accepted, anyTypes := comparisons[operator], slices.Contains(unordered, operator)
	return func(d Document) value {
		result := compare(left(d), right(d))
		if result == unknown || result == different && !anyTypes {
			return value{}
		}
		return boolean(slices.Contains(accepted, result))
	}
}

func member(left expression, list []value, in bool) expression {
	return func(d Document) value {
		v := left(d)
		if v.kind == typeUndefined {
			return value{}
		}
		return boolean(in == slices.ContainsFunc(list, func(other value) bool { return compare(v, other) == equal }))
	}
}

func (p *parser) literals() ([]value, error) {
	if !p.token.is("[") {
		return nil, p.unexpected("a list in brackets: ['a', 'b']")
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	var all []value
	if empty, err := p.accept("]"); err != nil || empty {
		return nil, err
	}
	if err := p.list(func() error {
		v, ok, err := p.literal()
		if err == nil && !ok {
			err = p.unexpected("a literal")
		}
		all = append(all, v)
		return err
	}); err != nil {
		return nil, err
	}
	return all, p.expect("]")
}

// words are the literals that are words, in lower case.
var words = map[string]value{
	"true": boolean(true), "false": boolean(false), "null": {kind: typeNull}, "undefined": {},
}

// literal parses a literal; false if there is none.
func (p *parser) literal() (v value, ok bool, err error) {
	t := p.token
	switch {
	case t.kind == kindString:
		return text(t.text), true, p.advance()
	case t.kind == kindNumber:
		return number(t.number), true, p.advance()
	case t.is("-"):
		if err := p.advance(); err != nil {
			return value{}, false, err
		}
		if p.token.kind != kindNumber {
			return value{}, false, p.unexpected("a number")
		}
		return number(-p.token.number), true, p.advance()
	}
	v, ok = words[strings.ToLower(t.text)]
	if !ok || t.kind != kindWord {
		return value{}, false, nil
	}
	return v, true, p.advance()
}
