package query

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// The limits of a query.
const (
	maxLength = 8 << 10 // bytes; the service's limit is about 8,200
	maxDepth  = 32
)

// reserved are the words that are no segments of a path, except in brackets.
var reserved = []string{"select", "top", "from", "where", "group", "by", "as", "and", "or", "not", "in", "nin", "true",
	"false", "null", "undefined"}

func isReserved(word string) bool { return slices.Contains(reserved, strings.ToLower(word)) }

// A Collection is what a query is about.
type Collection string

// The collections.
const (
	Devices Collection = "devices"
	Modules Collection = "devices.modules"
	Jobs    Collection = "devices.jobs"
)

// below are the collections other than Devices, by the name behind the dot.
var below = map[string]Collection{"modules": Modules, "jobs": Jobs}

// A Query is a parsed query. It is immutable: several goroutines may use it at once.
type Query struct {
	from    Collection
	top     int      // 0 = all
	columns []column // nil = *
	where   expression
	groups  []path
}

// A column is an element of SELECT: a path, or an aggregate.
type column struct {
	name      string
	path      path // of count, nil
	aggregate string
	at        int
}

// From returns the collection.
func (q *Query) From() Collection { return q.from }

// Top returns the maximum number of rows; 0 = no limit.
func (q *Query) Top() int { return q.top }

// Whole reports whether the rows are complete documents: the query selects *.
func (q *Query) Whole() bool { return q.columns == nil }

// Parse parses a query. The error is an [*Error].
func Parse(text string) (*Query, error) { return whole(text, (*parser).query) }

// ParseCondition parses the condition of a job or a configuration, as a query for the whole
// documents that fulfil it. The error is an [*Error].
func ParseCondition(text string) (*Query, error) { return whole(text, (*parser).target) }

// whole parses a text from its beginning to its end.
func whole(text string, parse func(*parser) (*Query, error)) (*Query, error) {
	p := &parser{lexer: lexer{text: text}}
	if len(text) > maxLength {
		return nil, p.errorf(maxLength, "the query has %d bytes, at most %d are allowed", len(text), maxLength)
	}
	if !utf8.ValidString(text) {
		return nil, p.errorf(0, "the query is not UTF-8")
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	q, err := parse(p)
	if err != nil {
		return nil, err
	}
	return q, nil
}

// A parser reads a query by recursive descent.
type parser struct {
	lexer
	token token // the next one
	depth int
	from  Collection
}

// errorf returns an error at an offset.
func (l *lexer) errorf(offset int, format string, args ...any) error {
	return &Error{Position: utf8.RuneCountInString(l.text[:offset]) + 1, Text: fmt.Sprintf(format, args...)}
}

// unexpected returns the error for the next token.
func (p *parser) unexpected(want string) error {
	return p.errorf(p.token.at, "%s, want %s", p.token.describe(), want)
}

func (p *parser) advance() (err error) {
	p.token, err = p.next()
	return err
}

// accept skips the next token if it is a keyword or sign.
func (p *parser) accept(text string) (bool, error) {
	if !p.token.is(text) {
		return false, nil
	}
	return true, p.advance()
}

// expect skips keywords or signs that must follow.
func (p *parser) expect(all ...string) error {
	for _, text := range all {
		ok, err := p.accept(text)
		if err != nil {
			return err
		}
		if !ok {
			return p.unexpected(text)
		}
	}
	return nil
}

// list parses one or more elements with commas between them.
func (p *parser) list(element func() error) error {
	for {
		if err := element(); err != nil {
			return err
		}
		if more, err := p.accept(","); err != nil || !more {
			return err
		}
	}
}

func (p *parser) query() (*Query, error) {
	q := &Query{}
	if err := p.expect("SELECT"); err != nil {
		return nil, err
	}
	if err := p.head(q); err != nil {
		return nil, err
	}
	if err := p.expect("FROM"); err != nil {
		return nil, err
	}
	if err := p.collection(); err != nil {
		return nil, err
	}
	q.from = p.from
	if err := p.tail(q); err != nil {
		return nil, err
	}
	if err := p.end("WHERE, GROUP BY or the end"); err != nil {
		return nil, err
	}
	p.strip(q)
	return q, p.check(q)
}

// end parses the end of the text. want is the error's list of possible words.
func (p *parser) end(want string) error {
	if _, err := p.accept(";"); err != nil {
		return err
	}
	if p.token.kind != kindEnd {
		return p.unexpected(want)
	}
	return nil
}

// target parses a condition that may name its collection.
func (p *parser) target() (*Query, error) {
	p.from = Devices
	named, err := p.accept("FROM")
	if err != nil {
		return nil, err
	}
	if named {
		if err := p.collection(); err != nil {
			return nil, err
		}
	}
	q := &Query{from: p.from}
	all, err := p.accept("*")
	if err != nil || all {
		return q, cmp.Or(err, p.end("the end"))
	}
	if where, err := p.accept("WHERE"); err != nil || named && !where {
		return q, cmp.Or(err, p.end("WHERE or the end"))
	}
	if q.where, err = p.condition(); err != nil {
		return nil, err
	}
	return q, p.end("the end")
}

// head parses what stands between SELECT and FROM.
func (p *parser) head(q *Query) error {
	if top, err := p.accept("TOP"); err != nil {
		return err
	} else if top {
		if n := p.token.number; p.token.kind != kindNumber || n < 1 || n > math.MaxInt32 || n != math.Trunc(n) {
			return p.unexpected("a whole number from 1")
		}
		q.top = int(p.token.number)
		if err := p.advance(); err != nil {
			return err
		}
	}
	if whole, err := p.accept("*"); err != nil || whole {
		return err
	}
	return p.list(func() error {
		c, err := p.column()
		q.columns = append(q.columns, c)
		return err
	})
}

// tail parses what stands behind the collection.
func (p *parser) tail(q *Query) error {
	where, err := p.accept("WHERE")
	if err != nil {
		return err
	}
	if where {
		if q.where, err = p.condition(); err != nil {
			return err
		}
	}
	group, err := p.accept("GROUP")
	if err != nil || !group {
		return err
	}
	if err := p.expect("BY"); err != nil {
		return err
	}
	return p.list(func() error {
		g, err := p.path()
		q.groups = append(q.groups, g)
		return err
	})
}

func (p *parser) collection() error {
	at := p.token.at
	if err := p.expect(string(Devices)); err != nil {
		return err
	}
	p.from = Devices
	dot, err := p.accept(".")
	if err != nil || !dot {
		return err
	}
	if c, ok := below[strings.ToLower(p.token.text)]; ok && p.token.kind == kindWord {
		p.from = c
		return p.advance()
	}
	return p.errorf(at, "collection devices.%s, want devices, devices.modules or devices.jobs", p.token.describe())
}

func (p *parser) column() (column, error) {
	c := column{at: p.token.at}
	word := p.token
	var err error
	if c.path, err = p.path(); err != nil {
		return c, err
	}
	if p.token.is("(") {
		if err := p.aggregate(&c, word); err != nil {
			return c, err
		}
	} else {
		c.name = c.path[len(c.path)-1]
	}
	named, err := p.accept("AS")
	if err != nil || !named {
		return c, err
	}
	c.name, err = p.segment()
	return c, err
}

// aggregate parses the parentheses of an aggregate, whose name was read as a path.
func (p *parser) aggregate(c *column, word token) error {
	c.aggregate = strings.ToLower(word.text)
	if word.kind != kindWord || len(c.path) != 1 || aggregates[c.aggregate] == nil {
		return p.errorf(c.at, "%s is no aggregate; the aggregates are count, avg, min, max and sum", word.describe())
	}
	c.path = nil
	if err := p.expect("("); err != nil {
		return err
	}
	if c.aggregate != countAggregate {
		var err error
		if c.path, err = p.path(); err != nil {
			return err
		}
	}
	return p.expect(")")
}

// check checks what no single part of the query can tell, and names the aggregates without alias.
func (p *parser) check(q *Query) error {
	names, unnamed := make(map[string]bool), 0
	for i := range q.columns {
		c := &q.columns[i]
		if c.name == "" {
			unnamed++
			c.name = fmt.Sprintf("$%d", unnamed)
		}
		if names[c.name] {
			return p.errorf(c.at, "two columns have the name %s; give one an alias with AS", shortened(c.name))
		}
		names[c.name] = true
		if c.aggregate == "" && q.Grouped() && !slices.ContainsFunc(q.groups, c.path.same) {
			return p.errorf(c.at, "%s is neither an aggregate nor in GROUP BY", shortened(c.path.String()))
		}
	}
	if q.groups != nil && q.Whole() {
		return p.errorf(0, "* cannot be selected with GROUP BY; name the columns")
	}
	return nil
}

// Grouped reports whether a row stands for several documents. Then the first row needs all of them.
func (q *Query) Grouped() bool {
	return q.groups != nil || slices.ContainsFunc(q.columns, func(c column) bool { return c.aggregate != "" })
}

// strip removes the name of the collection from the paths of SELECT, which come before FROM.
func (p *parser) strip(q *Query) {
	for i := range q.columns {
		q.columns[i].path = p.relative(q.columns[i].path)
	}
}
