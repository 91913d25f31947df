package scrub

import "strings"

// pem finds a private key.
func (x *scanner) pem(i int) (from, to int) {
	const begin, end = "-----begin ", "-----end "
	rest := x.lower[i:]
	if !strings.HasPrefix(rest, begin) {
		return 0, 0
	}
	label := rest[len(begin):]
	n := strings.Index(label, "-----")
	if n < 0 {
		n = len(label)
	}
	if !strings.Contains(label[:n], "private key") {
		return 0, 0
	}
	from = i + len(begin) + n
	if strings.HasPrefix(x.s[from:], "-----") {
		from += len("-----")
	}
	if n := strings.Index(x.lower[from:], end); n >= 0 {
		return from, from + n
	}
	return from, len(x.s)
}

// forms are the prefixes of secrets, and their minimum lengths.
var forms = [...]struct {
	begin string
	least int
}{
	{"eyJ", 20}, {"AKIA", 20}, {"ASIA", 20}, {"AIza", 35}, {"ghp_", 20}, {"gho_", 20}, {"ghu_", 20}, {"ghs_", 20},
	{"ghr_", 20}, {"github_pat_", 20},
	{"glpat-", 20}, {"xoxb-", 16}, {"xoxp-", 16}, {"xoxa-", 16}, {"xoxs-", 16}, {"sk_live_", 16}, {"sk_test_", 16},
	{"rk_live_", 16}, {"npm_", 30}, {"hvs.", 20}, {"SG.", 30},
}

// byForm returns the end of the secret at i that its form reveals; i or less for none.
func (x *scanner) byForm(i int) int {
	rest := x.s[i:]
	for _, f := range forms {
		if !strings.HasPrefix(rest, f.begin) {
			continue
		}
		n := 0
		for n < len(rest) && inName(rest[n]) {
			n++
		}
		if n >= f.least {
			return i + n
		}
	}
	return x.key(i)
}

// key returns the end of base64 text with the length and mix of characters of a key; 0 for none.
func (x *scanner) key(i int) int {
	if i > 0 && (x.s[i-1] == '/' || x.s[i-1] == '+') {
		return 0 // not the start of the run
	}
	b := &x.base64
	if i >= b.to {
		*b = base64{from: i, to: i}
		for ; b.to < len(x.s) && base64Kind(x.s[b.to]) != 0; b.to++ {
			b.count(x.s, b.to, 1)
		}
	}
	for ; b.from < i; b.from++ { // an end of the last text is not read again
		b.count(x.s, b.from, -1)
	}
	n, pad, changes, slashes := b.to-i, 0, b.changes, b.slashes
	for pad < 2 && i+n+pad < len(x.s) && x.s[i+n+pad] == '=' {
		pad++
	}
	mixed := changes*5 >= n*2
	switch {
	case pad > 0 && n >= 22 && (n+pad)%4 == 0 && mixed && x.ends(i+n+pad):
		return i + n + pad
	case n >= 40 && slashes <= n/16 && changes*2 >= n:
		return i + n
	}
	return 0
}

// base64 is a text of base64, and what its characters are like.
type base64 struct{ from, to, changes, slashes int }

// count counts the character at i of s, and whether the next one is of another kind, n times.
func (b *base64) count(s string, i, n int) {
	if s[i] == '/' {
		b.slashes += n
	}
	if i+1 == len(s) {
		return
	}
	if next := base64Kind(s[i+1]); next != 0 && next != base64Kind(s[i]) {
		b.changes += n
	}
}

// base64Kind returns the kind of a character of base64, 0 for others.
func base64Kind(c byte) int {
	switch {
	case 'a' <= c && c <= 'z':
		return 1
	case 'A' <= c && c <= 'Z':
		return 2
	case '0' <= c && c <= '9':
		return 3
	case c == '/' || c == '+' || c == '-' || c == '_':
		return 4
	}
	return 0
}
