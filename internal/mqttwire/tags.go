package mqttwire

// Tags is a set of message tags, with a bit for each up to the highest: tags are small.
type Tags []uint32

// Add adds tag.
func (t *Tags) Add(tag uint16) {
	for len(*t) <= int(tag/32) {
		*t = append(*t, 0)
	}
	(*t)[tag/32] |= 1 << (tag % 32)
}

// Remove removes tag and reports whether it was in the set.
func (t Tags) Remove(tag uint16) bool {
	i, bit := int(tag/32), uint32(1)<<(tag%32)
	if i >= len(t) || t[i]&bit == 0 {
		return false
	}
	t[i] &^= bit
	return true
}

// Has reports whether tag is in the set.
func (t Tags) Has(tag uint16) bool {
	i := int(tag / 32)
	return i < len(t) && t[i]>>(tag%32)&1 != 0
}

// Empty reports whether no tag is in the set.
func (t Tags) Empty() bool {
	for _, word := range t {
		if word != 0 {
			return false
		}
	}
	return true
}
