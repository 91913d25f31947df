package mqttwire

import (
	"bytes"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/texts"
)

// ValidTopic reports whether a message can be published under t: not empty, UTF-8 without U+0000
// and wildcards, MaxText bytes at most.
func ValidTopic(t []byte) bool {
	if len(t) == 0 || len(t) > MaxText || !utf8.Valid(t) {
		return false
	}
	for _, b := range t {
		if b == 0 || b == '+' || b == '#' {
			return false
		}
	}
	return true
}

// ValidText reports whether s can be sent as a string of MQTT 5: MaxText bytes of plain UTF-8 at
// most.
func ValidText(s string) bool { return len(s) <= MaxText && utf8.ValidString(s) && texts.Plain(s) }

// wellFormed reports whether a peer may send s as a string of MQTT 5.
func wellFormed(s []byte) bool { return utf8.Valid(s) && bytes.IndexByte(s, 0) < 0 }
