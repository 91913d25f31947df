package mqttpacket

import (
	"bytes"
	"unicode/utf8"
)

// PlainText reports whether s, which is UTF-8, has no character that MQTT advises against in texts
// and for which brokers such as mosquitto close the connection: controls and noncharacters (section
// 1.5.3; 1.5.4 of MQTT 5).
func PlainText(s string) bool {
	for _, r := range s {
		if r < ' ' || 0x7f <= r && r < 0xa0 || 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe {
			return false
		}
	}
	return true
}

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
func ValidText(s string) bool { return len(s) <= MaxText && utf8.ValidString(s) && PlainText(s) }

// wellFormed reports whether a peer may send s as a string of MQTT 5.
func wellFormed(s []byte) bool { return utf8.Valid(s) && bytes.IndexByte(s, 0) < 0 }
