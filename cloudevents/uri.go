package cloudevents

import "strings"

// validReference reports whether s is a URI reference of RFC 3986, section 4.1; with absolute, only
// if it is an absolute URI, which has no fragment (section 4.3).
func validReference(s string, absolute bool) bool {
	s, fragment, hasFragment := strings.Cut(s, "#")
	s, query, _ := strings.Cut(s, "?")
	if absolute && hasFragment || !uriChars(fragment, "/?:@") || !uriChars(query, "/?:@") {
		return false
	}
	if colon := strings.IndexByte(s, ':'); colon >= 0 && !strings.Contains(s[:colon], "/") {
		if !validScheme(s[:colon]) {
			return false // the first segment of a relative path has no colon
		}
		s = s[colon+1:]
	} else if absolute {
		return false
	}
	if rest, found := strings.CutPrefix(s, "//"); found {
		authority := rest
		if slash := strings.IndexByte(rest, '/'); slash >= 0 {
			authority, s = rest[:slash], rest[slash:]
		} else {
			s = ""
		}
		if !validAuthority(authority) {
			return false
		}
	}
	return uriChars(s, "/:@")
}

func validScheme(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !letter(c) && (i == 0 || !digit(c) && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

// validAuthority checks user information, host and port. The text within brackets is only checked
// for its characters.
func validAuthority(s string) bool {
	if at := strings.LastIndexByte(s, '@'); at >= 0 {
		if !uriChars(s[:at], ":") {
			return false
		}
		s = s[at+1:]
	}
	host, port := s, ""
	if end := strings.IndexByte(s, ']'); strings.HasPrefix(s, "[") && end > 1 {
		host, s = s[1:end], s[end+1:]
		if !uriChars(host, ":") || s != "" && s[0] != ':' {
			return false
		}
		host, port = "", strings.TrimPrefix(s, ":")
	} else if colon := strings.LastIndexByte(s, ':'); colon >= 0 {
		host, port = s[:colon], s[colon+1:]
	}
	for i := range len(port) {
		if !digit(port[i]) {
			return false
		}
	}
	return uriChars(host, "")
}

// uriChars reports whether s is of unreserved characters, sub-delimiters, escapes such as %20 and
// characters in also.
func uriChars(s, also string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case letter(c), digit(c), strings.IndexByte("-._~!$&'()*+,;=", c) >= 0, strings.IndexByte(also, c) >= 0:
		case c == '%' && i+2 < len(s) && hexDigit(s[i+1]) && hexDigit(s[i+2]):
			i += 2
		default:
			return false
		}
	}
	return true
}

func letter(c byte) bool   { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func digit(c byte) bool    { return c >= '0' && c <= '9' }
func hexDigit(c byte) bool { return digit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
