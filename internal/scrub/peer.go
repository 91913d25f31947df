package scrub

import (
	"strings"
	"unicode/utf8"
)

// KnownCause is like Cause, and also hides the given secrets.
func KnownCause(err error, secrets ...string) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); Known(text, secrets...) != text {
		return &cause{err, Peer(Known(text, secrets...))}
	}
	return Cause(err)
}

// MaxPeer bounds the length of a peer's text.
const MaxPeer = 1 << 10

// Peer makes a peer's text safe for an error: it hides secrets, escapes line ends, control and
// formatting characters and invalid UTF-8 (\n, \x1b), and cuts the text to MaxPeer plus "...".
func Peer(s string) string {
	cut := ""
	if len(s) > 4*MaxPeer {
		s, cut = s[:4*MaxPeer], "..."
		s = s[:strings.LastIndexAny(s, " \n")+1] // a secret cut in two might not be recognized
	}
	if s = escape(Text(s)); len(s) > MaxPeer {
		s, cut = s[:MaxPeer], "..."
		for i := 0; i < utf8.UTFMax-1 && len(s) > 0; i++ { // not in the middle of a character
			if r, n := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || n != 1 {
				break
			}
			s = s[:len(s)-1]
		}
	}
	return strings.Trim(s, " ") + cut
}

type cause struct {
	err  error
	text string
}

func (c *cause) Error() string { return c.text }

func (c *cause) Unwrap() error { return c.err }

func escape(s string) string {
	plain := 0
	for plain < len(s) && ' ' <= s[plain] && s[plain] <= '~' {
		plain++
	}
	if plain == len(s) {
		return s
	}
	const digits = "0123456789abcdef"
	out := []byte(s[:plain])
	for i := plain; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if shown(r, n) {
			out = append(out, s[i:i+n]...)
			i += n
			continue
		}
		for ; n > 0; n-- {
			switch c := s[i]; c {
			case '\n':
				out = append(out, '\\', 'n')
			case '\r':
				out = append(out, '\\', 'r')
			case '\t':
				out = append(out, '\\', 't')
			default:
				out = append(out, '\\', 'x', digits[c>>4], digits[c&15])
			}
			i++
		}
	}
	return string(out)
}

// shown reports whether a character may appear in a log: it does not move the cursor or reverse the
// text direction.
func shown(r rune, size int) bool {
	switch {
	case r < ' ', 0x7f <= r && r < 0xa0, r == utf8.RuneError && size == 1:
		return false
	case 0x200b <= r && r <= 0x200f, 0x2028 <= r && r <= 0x202e, 0x2060 <= r && r <= 0x206f, r == 0xfeff, 0xe0000 <= r &&
		r < 0xe1000:
		return false
	}
	return true
}
