package query

import "encoding/json"

// Accepts reports whether a document fulfils the condition.
func (q *Query) Accepts(d Document) bool {
	if q.where == nil {
		return true
	}
	v := q.where(d)
	return v.kind == typeBool && v.truth
}

// Row returns the row of an accepted document of a query that is not grouped.
func (q *Query) Row(d Document) Document {
	if q.Whole() {
		return d
	}
	row := Document{}
	for _, c := range q.columns {
		if v, ok := c.path.of(d); ok {
			row[c.name] = v
		}
	}
	return row
}

// Run returns the rows for documents. It does not change them; rows may share their values.
func (q *Query) Run(documents []Document) []Document {
	if q.Grouped() {
		rows, _ := q.Groups(documents, 0, len(documents)+1)
		return rows
	}
	rows := []Document{}
	for _, d := range documents {
		if q.Accepts(d) {
			rows = append(rows, q.Row(d))
		}
	}
	return first(rows, q.top)
}

// first returns the first elements, or all for 0.
func first[T any](all []T, most int) []T {
	if most > 0 && len(all) > most {
		return all[:most]
	}
	return all
}

// Groups returns the rows of a grouped query from a place on, at most size, and whether there are
// more. It makes no others, because there may be a group for each document.
func (q *Query) Groups(documents []Document, from, size int) (rows []Document, more bool) {
	groups := first(q.groupsOf(documents), q.top)
	groups = groups[min(from, len(groups)):]
	rows = []Document{}
	for _, g := range first(groups, size) {
		row := Document{}
		for _, c := range q.columns {
			if v, ok := c.of(g); ok {
				row[c.name] = v
			}
		}
		rows = append(rows, row)
	}
	return rows, len(groups) > size
}

// A group is the accepted documents with the same values of the paths of GROUP BY.
type group struct {
	first Document
	all   []Document
}

// groupsOf returns the groups of the accepted documents, in the order of their first ones.
func (q *Query) groupsOf(documents []Document) (groups []*group) {
	byKey := make(map[string]*group)
	if q.groups == nil { // one group, even of nothing
		groups = []*group{{}}
		byKey[""] = groups[0]
	}
	for _, d := range documents {
		if !q.Accepts(d) {
			continue
		}
		key := q.key(d)
		g := byKey[key]
		if g == nil {
			g = &group{first: d}
			byKey[key] = g
			groups = append(groups, g)
		}
		g.all = append(g.all, d)
	}
	return groups
}

// key returns a text that is the same for documents of one group.
func (q *Query) key(d Document) string {
	var key []byte
	for _, g := range q.groups {
		if v, ok := g.of(d); ok {
			text, _ := json.Marshal(v) // a JSON value always encodes
			key = append(key, text...)
		}
		key = append(key, 0) // in no JSON text
	}
	return string(key)
}

// of returns the value of a column for a group.
func (c column) of(g *group) (any, bool) {
	if c.aggregate != "" {
		return aggregates[c.aggregate](g.all, c.path)
	}
	return c.path.of(g.first)
}

const countAggregate = "count"

// aggregates are keyed by their names in lower case. A result that is not ok is undefined.
var aggregates = map[string]func(all []Document, p path) (result any, ok bool){
	countAggregate: func(all []Document, _ path) (any, bool) { return len(all), true },
	"sum": func(all []Document, p path) (any, bool) {
		sum, _ := total(all, p)
		return sum.number, sum.kind == typeNumber
	},
	"avg": func(all []Document, p path) (any, bool) {
		sum, n := total(all, p)
		return sum.number / float64(n), sum.kind == typeNumber && n > 0
	},
	"min": func(all []Document, p path) (any, bool) { return extreme(all, p, less) },
	"max": func(all []Document, p path) (any, bool) { return extreme(all, p, greater) },
}

// total returns the sum and the count of the numbers at a path.
func total(all []Document, p path) (sum value, n int) {
	exact := 0.0
	for _, d := range all {
		if v, ok := p.of(d); ok {
			if v := valueOf(v); v.kind == typeNumber {
				exact += v.number
				n++
			}
		}
	}
	return number(exact), n
}

// extreme returns the least or greatest number at a path, or string if there is no number.
func extreme(all []Document, p path, want order) (any, bool) {
	for _, kind := range []valueType{typeNumber, typeString} {
		var best value
		var found any
		for _, d := range all {
			member, ok := p.of(d)
			if !ok {
				continue
			}
			if v := valueOf(member); v.kind == kind && (best.kind == typeUndefined || compare(v, best) == want) {
				best, found = v, member
			}
		}
		if best.kind != typeUndefined {
			return found, true
		}
	}
	return nil, false
}
