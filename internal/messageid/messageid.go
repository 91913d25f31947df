// Package messageid makes ids for messages that have none: a prefix, "-" and a counter.
package messageid

// mostIDs is the maximum number of ids made at a time, in one allocation.
const mostIDs = 64

// Source makes ids. Its zero value returns empty ones. It is not safe for concurrent use.
type Source struct {
	prefix string
	next   uint64 // the counter of the next id
	made   string // ids made in advance; the next one is first
	some   int    // size of the last batch
}

// NewSource returns a Source of ids that begin with prefix.
func NewSource(prefix string) Source { return Source{prefix: prefix, next: 1} }

// On reports whether the Source makes ids.
func (s *Source) On() bool { return s.prefix != "" }

// Next returns the next id. It allocates once per batch of up to 64 ids; the first batches are
// smaller.
func (s *Source) Next() string {
	if s.prefix == "" {
		return ""
	}
	if s.made == "" {
		s.make()
	}
	size := len(s.prefix) + 1 + digits(s.next)
	id := s.made[:size]
	s.made = s.made[size:]
	s.next++
	return id
}

func (s *Source) make() {
	s.some = min(max(4, 2*s.some), mostIDs)
	all := make([]byte, 0, s.some*(len(s.prefix)+1+digits(s.next+mostIDs)))
	for i := range uint64(s.some) {
		all = append(append(all, s.prefix...), '-')
		all = appendNumber(all, s.next+i)
	}
	s.made = string(all)
}

// letters are the digits of counters and of random prefixes.
const letters = "0123456789abcdefghijklmnopqrstuvwxyz"

const base = uint64(len(letters))

func digits(n uint64) int {
	size := 1
	for ; n >= base; n /= base {
		size++
	}
	return size
}

func appendNumber(dst []byte, n uint64) []byte {
	if n >= base {
		dst = appendNumber(dst, n/base)
	}
	return append(dst, letters[n%base])
}

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
