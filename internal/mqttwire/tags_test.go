package mqttwire

import "testing"

func TestTagsRemovesWhatWasAddedOnce(t *testing.T) {
	var set Tags
	for _, tag := range []uint16{0, 31, 32, 61439, 65535} {
		if set.Remove(tag) {
			t.Errorf("%d is in an empty set", tag)
		}
		set.Add(tag)
	}
	for _, tag := range []uint16{1, 30, 33, 61438} {
		if set.Remove(tag) {
			t.Errorf("%d is in the set", tag)
		}
	}
	for _, tag := range []uint16{65535, 0, 31, 32, 61439} {
		if !set.Remove(tag) || set.Remove(tag) {
			t.Errorf("%d was not in the set once", tag)
		}
	}
}
