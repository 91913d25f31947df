package texts

import "strings"

// marks are the quotation marks of shells, configuration files and word processors.
var marks = [...][2]string{{`"`, `"`}, {"'", "'"}, {"`", "`"}, {"\u201c", "\u201d"}, {"\u2018", "\u2019"}}

// Unquote strips the space and a byte order mark around s, then quotation marks and the space
// inside them. It returns false if s begins with a quotation mark and does not end with one.
func Unquote(s string) (string, bool) {
	s = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(s), "\ufeff"))
	for _, m := range marks {
		inside, found := strings.CutPrefix(s, m[0])
		if !found {
			continue
		}
		inside, found = strings.CutSuffix(inside, m[1])
		return strings.TrimSpace(inside), found
	}
	return s, true
}

// OneEditApart reports whether a becomes b, apart from case, by changing, adding or removing one
// byte, or by swapping two neighbours.
func OneEditApart(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	switch len(b) - len(a) {
	case 0:
		return i == len(a) || a[i+1:] == b[i+1:] || i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
	case 1:
		return a[i:] == b[i+1:]
	}
	return false
}
