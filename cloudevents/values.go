package cloudevents

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/isotime"
	"github.com/hubline-iot/hubline/internal/scrub"
)

// shown makes a name that may come from a peer safe for an error.
func shown(name string) string { return scrub.Peer(name) }

// validName reports whether an attribute may have this name.
func validName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// validString reports whether s is a String of the specification: no control characters and no
// noncharacters.
func validString(s string) bool {
	for i, size := 0, 0; i < len(s); i += size {
		c := s[i]
		size = 1
		if c < utf8.RuneSelf {
			if c < ' ' || c == 0x7f {
				return false
			}
			continue
		}
		var r rune
		r, size = utf8.DecodeRuneInString(s[i:])
		switch {
		case size == 1, r <= 0x9f, r&0xfffe == 0xfffe, r >= 0xfdd0 && r <= 0xfdef:
			return false
		}
	}
	return true
}

// parseTime parses a Timestamp. RFC 3339 also allows small letters, and second 60, a leap second.
func parseTime(s string) (time.Time, bool) {
	s = strings.ToUpper(s)
	leap := len(s) > 19 && s[17:19] == "60"
	if leap {
		s = s[:17] + "59" + s[19:]
	}
	t, ok := isotime.Parse(s)
	if leap {
		t = t.Add(time.Second)
	}
	return t, ok
}
