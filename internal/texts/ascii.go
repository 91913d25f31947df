package texts

// EqualFold reports whether a and b are equal, ignoring the case of ASCII letters. Inlined, it
// would take 1.5 KB more of a program for ARM.
//
//go:noinline
func EqualFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := len(a) - 1; i >= 0; i-- { // names of one program often begin alike
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

// HashFold returns a hash of s by FNV-1a that is the same whatever the case of ASCII letters.
func HashFold(s string) uint8 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i]|0x20)) * 16777619
	}
	return uint8(h ^ h>>8 ^ h>>16 ^ h>>24)
}

// ToLower returns s with ASCII letters in lower case.
func ToLower(s string) string {
	for i := range len(s) {
		if s[i] != lower(s[i]) {
			b := []byte(s)
			for ; i < len(b); i++ {
				b[i] = lower(b[i])
			}
			return string(b)
		}
	}
	return s
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// Quote returns s in quotation marks on one line. It escapes quotation marks and backslashes with a
// backslash, line feeds as \n, and other bytes that are not printable ASCII as \x and two digits.
func Quote(s string) string {
	const digits = "0123456789abcdef"
	q := make([]byte, 1, len(s)+2)
	q[0] = '"'
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			q = append(q, '\\', c)
		case c == '\n':
			q = append(q, '\\', 'n')
		case c < ' ' || c > '~':
			q = append(q, '\\', 'x', digits[c>>4], digits[c&15])
		default:
			q = append(q, c)
		}
	}
	return string(append(q, '"'))
}
