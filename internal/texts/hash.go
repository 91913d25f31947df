package texts

// Hash is FNV-1a with 64 bits: two devices that start at the same time draw different random
// numbers.
func Hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
