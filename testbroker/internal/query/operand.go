package query

import (
	"math"
	"strings"
)

// arithmetic are the operators on numbers.
var arithmetic = map[string]func(a, b float64) float64{
	"+": func(a, b float64) float64 { return a + b },
	"-": func(a, b float64) float64 { return a - b },
	"*": func(a, b float64) float64 { return a * b },
	"/": func(a, b float64) float64 { return a / b },
	"%": math.Mod,
}

func (p *parser) sum() (expression, error)     { return p.calculation(p.product, "+", "-") }
func (p *parser) product() (expression, error) { return p.calculation(p.operand, "*", "/", "%") }

// calculation parses operands with operators of one rank between them.
func (p *parser) calculation(operand func() (expression, error), operators ...string) (expression, error) {
	first, err := operand()
	if err != nil {
		return nil, err
	}
	type step struct {
		do    func(a, b float64) float64
		right expression
	}
	var steps []step
	for {
		operator, err := p.anyOf(operators)
		if err != nil {
			return nil, err
		}
		if operator == "" {
			break
		}
		right, err := operand()
		if err != nil {
			return nil, err
		}
		steps = append(steps, step{arithmetic[operator], right})
	}
	if steps == nil {
		return first, nil
	}
	return func(d Document) value {
		result := first(d)
		for _, s := range steps {
			right := s.right(d)
			if result.kind != typeNumber || right.kind != typeNumber {
				return value{}
			}
			result = number(s.do(result.number, right.number))
		}
		return result
	}, nil
}

// anyOf skips the next token if it is one of the signs, and returns it.
func (p *parser) anyOf(signs []string) (string, error) {
	for _, s := range signs {
		if ok, err := p.accept(s); err != nil || ok {
			return s, err
		}
	}
	return "", nil
}

func (p *parser) operand() (expression, error) {
	v, ok, err := p.literal()
	if err != nil {
		return nil, err
	}
	if ok {
		return func(Document) value { return v }, nil
	}
	if open, err := p.accept("("); err != nil {
		return nil, err
	} else if open {
		inner, err := p.condition()
		if err != nil {
			return nil, err
		}
		return inner, p.expect(")")
	}
	word := p.token
	if word.kind != kindWord && word.kind != kindQuoted {
		return nil, p.unexpected("a property, a literal or a function")
	}
	found, err := p.path()
	if err != nil {
		return nil, err
	}
	if p.token.is("(") {
		return p.call(word, len(found))
	}
	return func(d Document) value {
		v, ok := found.of(d)
		if !ok {
			return value{}
		}
		return valueOf(v)
	}, nil
}

// call parses the arguments of a function, whose name was read as a path of some segments.
func (p *parser) call(word token, segments int) (expression, error) {
	f, ok := functions[strings.ToLower(word.text)]
	if !ok || segments != 1 || word.kind != kindWord {
		return nil, p.errorf(word.at, "%s is no function of this language", word.describe())
	}
	if err := p.expect("("); err != nil {
		return nil, err
	}
	var arguments []expression
	if err := p.list(func() error {
		a, err := p.condition()
		arguments = append(arguments, a)
		return err
	}); err != nil {
		return nil, err
	}
	if len(arguments) != f.arguments {
		return nil, p.errorf(word.at, "%s has %d arguments, want %d", word.text, len(arguments), f.arguments)
	}
	return func(d Document) value {
		values := [maxArguments]value{}
		for i, a := range arguments {
			values[i] = a(d)
		}
		return f.do(values)
	}, p.expect(")")
}

const maxArguments = 2

// A function is a function of the language.
type function struct {
	arguments int
	do        func([maxArguments]value) value
}

// functions are keyed by their names in lower case.
var functions = map[string]function{
	"is_defined":   is(typeNull, typeBool, typeNumber, typeString, typeArray, typeObject),
	"is_null":      is(typeNull),
	"is_bool":      is(typeBool),
	"is_number":    is(typeNumber),
	"is_string":    is(typeString),
	"is_array":     is(typeArray),
	"is_object":    is(typeObject),
	"is_primitive": is(typeNull, typeBool, typeNumber, typeString),
	"startswith":   ofStrings(strings.HasPrefix),
	"starts_with":  ofStrings(strings.HasPrefix),
	"endswith":     ofStrings(strings.HasSuffix),
	"ends_with":    ofStrings(strings.HasSuffix),
	"contains":     ofStrings(strings.Contains),
	"as_number":    {1, asNumber},
}

// is returns a function that reports whether its argument has one of the types.
func is(types ...valueType) function {
	return function{1, func(v [maxArguments]value) value {
		for _, t := range types {
			if v[0].kind == t {
				return boolean(true)
			}
		}
		return boolean(false)
	}}
}

func ofStrings(do func(s, part string) bool) function {
	return function{2, func(v [maxArguments]value) value {
		if v[0].kind != typeString || v[1].kind != typeString {
			return value{}
		}
		return boolean(do(v[0].text, v[1].text))
	}}
}

func asNumber(v [maxArguments]value) value {
	if v[0].kind == typeString {
		return parsed(v[0].text)
	}
	if v[0].kind == typeNumber {
		return v[0]
	}
	return value{}
}
