// Package messageid makes ids for messages that have none: a prefix, "-" and a counter.
package messageid

import "strings"

// mostIDs is the maximum number of ids made at a time, in one allocation.
const mostIDs = 64

// Source makes ids. Its zero value returns empty ones. It is not safe for concurrent use.
type Source struct {
	next  []byte // the id after those that are made; nil without a prefix
	fixed int    // bytes of next before the counter
	made  string // ids made in advance, all of the length of size; the next one is first
	size  int
	some  int // how many were made last
}

// NewSource returns a Source of ids that begin with prefix.
func NewSource(prefix string) Source {
	if prefix == "" {
		return Source{}
	}
	return Source{next: []byte(prefix + "-1"), fixed: len(prefix) + 1}
}

// On reports whether the Source makes ids.
func (s *Source) On() bool { return s.next != nil }

// Next returns the next id. It allocates once per batch of up to 64 ids; the first batches are
// smaller.
func (s *Source) Next() string {
	if !s.On() {
		return ""
	}
	if s.made == "" {
		s.make()
	}
	id := s.made[:s.size]
	s.made = s.made[s.size:]
	return id
}

// make makes a batch, which ends early where the counter gets a digit more.
func (s *Source) make() {
	s.some, s.size = min(max(4, 2*s.some), mostIDs), len(s.next)
	var all strings.Builder
	all.Grow(s.some * s.size)
	for range s.some {
		if len(s.next) > s.size {
			break
		}
		all.Write(s.next)
		s.increment()
	}
	s.made = all.String()
}

// increment adds one to the counter in place.
func (s *Source) increment() {
	for i := len(s.next) - 1; i >= s.fixed; i-- {
		switch c := &s.next[i]; *c {
		case '9':
			*c = 'a'
			return
		case 'z':
			*c = '0' // and carries
		default:
			*c++
			return
		}
	}
	s.next[s.fixed] = '1'
	s.next = append(s.next, '0')
}

// letters are the digits of counters and of random prefixes.
const letters = "0123456789abcdefghijklmnopqrstuvwxyz"

const base = uint64(len(letters))

// Random returns a random prefix of eight characters. Two processes have the same one with a
// probability of one in 10^12. Builds for boards have no entropy source; there it returns "".
func Random() string {
	n := entropy()
	if n == 0 {
		return ""
	}
	var prefix [8]byte
	for i := range prefix {
		prefix[i] = letters[n%base]
		n /= base
	}
	return string(prefix[:])
}

// MaxPrefix is the longest prefix that Valid accepts.
const MaxPrefix = 64

// Valid reports whether prefix has at most MaxPrefix characters, all ASCII letters, digits and
// "-._~", which every protocol carries unchanged.
func Valid(prefix string) bool {
	for i := 0; i < len(prefix); i++ {
		switch c := prefix[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~':
		default:
			return false
		}
	}
	return len(prefix) <= MaxPrefix
}
