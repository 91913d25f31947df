package query

import "strings"

// A path leads to a value in a document.
type path []string

// String returns the path in the form of the language.
func (p path) String() string { return strings.Join(p, ".") }

// same reports whether two paths lead to the same member of every document.
func (p path) same(other path) bool {
	if len(p) != len(other) {
		return false
	}
	for i := range p {
		if p[i] != other[i] && !(p.freeCase(i) && strings.EqualFold(p[i], other[i])) {
			return false
		}
	}
	return true
}

func (p *parser) segment() (string, error) {
	t := p.token
	switch {
	case t.kind == kindQuoted:
	case t.kind != kindWord:
		return "", p.unexpected("a name")
	case isReserved(t.text):
		return "", p.errorf(t.at, "%s is a keyword; write [[%s]] for a property with that name", t.text, t.text)
	}
	return t.text, p.advance()
}

// path parses a path. Behind FROM it is relative to the document.
func (p *parser) path() (path, error) {
	first, err := p.segment()
	if err != nil {
		return nil, err
	}
	found := path{first}
	for {
		var next string
		switch {
		case p.token.is("."):
			if err := p.advance(); err != nil {
				return nil, err
			}
			if next, err = p.segment(); err != nil {
				return nil, err
			}
		case p.token.is("["):
			if next, err = p.bracket(); err != nil {
				return nil, err
			}
		default:
			return p.relative(found), nil
		}
		found = append(found, next)
	}
}

func (p *parser) bracket() (string, error) {
	if err := p.expect("["); err != nil {
		return "", err
	}
	if p.token.kind != kindString {
		return "", p.unexpected("a name in quotes")
	}
	name := p.token.text
	if err := p.advance(); err != nil {
		return "", err
	}
	return name, p.expect("]")
}

// relative removes the name of the collection. Other collections are below that of devices, whose
// name is removed, too.
func (p *parser) relative(full path) path {
	if p.from == "" || len(full) < 2 || !strings.EqualFold(full[0], string(Devices)) {
		return full
	}
	if len(full) > 2 && below[strings.ToLower(full[1])] == p.from {
		return full[2:]
	}
	return full[1:]
}

// of returns the value in a document; false if there is none.
func (p path) of(document Document) (any, bool) {
	var v any = document
	for i, name := range p {
		object, ok := v.(Document)
		if !ok {
			return nil, false
		}
		if v, ok = object[name]; ok {
			continue
		}
		if !p.freeCase(i) {
			return nil, false
		}
		for other, member := range object {
			if strings.EqualFold(other, name) {
				v, ok = member, true
				break
			}
		}
		if !ok {
			return nil, false
		}
	}
	return v, true
}

// freeCase reports whether a segment is a name of the service's rather than a user's.
func (p path) freeCase(i int) bool {
	return i == 0 || i == 1 && !strings.EqualFold(p[0], "tags")
}
