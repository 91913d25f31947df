package mqtt

import "strings"

// sharePrefix begins the filter of a shared subscription.
const sharePrefix = "$share/"

// ValidName reports whether a text is a topic name.
func ValidName(s string) bool { return s != "" && !strings.ContainsAny(s, "+#\x00") }

// ValidFilter reports whether a text is a topic filter: "+" is a whole level, "#" the whole last
// one.
func ValidFilter(s string) bool {
	if s == "" {
		return false
	}
	levels := strings.Split(s, "/")
	for i, l := range levels {
		if strings.ContainsAny(l, "+#") && len(l) > 1 || l == "#" && i < len(levels)-1 {
			return false
		}
	}
	return true
}

// Unshare returns the filter of a shared subscription without its share name.
func Unshare(filter string) (plain string, shared, ok bool) {
	rest, shared := strings.CutPrefix(filter, sharePrefix)
	if !shared {
		return filter, false, true
	}
	name, plain, ok := strings.Cut(rest, "/")
	return plain, true, ok && name != "" && plain != "" && !strings.ContainsAny(name, "+#")
}

// Covers reports whether every topic that matches the narrow filter matches the wide one too. A
// topic name is a filter that matches itself.
func Covers(wide, narrow string) bool {
	if strings.HasPrefix(narrow, "$") != strings.HasPrefix(wide, "$") {
		return false // wildcards do not match the first level of such topics
	}
	w, n := strings.Split(wide, "/"), strings.Split(narrow, "/")
	for i, l := range w {
		switch {
		case l == "#":
			return true // also the level above
		case i >= len(n), n[i] == "#", l != "+" && l != n[i]:
			return false
		}
	}
	return len(n) == len(w)
}
