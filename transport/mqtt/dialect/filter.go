package dialect

import "strings"

// MQTT 3.1.1, section 4.7. A filter is valid UTF-8 of 65535 bytes at most, which the caller checks.

// validFilter reports whether the wildcards of a filter stand where they may: each is a whole
// level, and "#" is the last one.
func validFilter(filter string) bool {
	for rest, more := filter, filter != ""; more; {
		var level string
		level, rest, more = strings.Cut(rest, "/")
		if strings.ContainsAny(level, "+#\x00") && level != "+" && (level != "#" || more) {
			return false
		}
	}
	return filter != ""
}

// unshared returns the filter of a shared subscription, "$share/NAME/FILTER", and any other filter
// as it is: MQTT 5, section 4.8.2; many brokers have it for MQTT 3.1.1, too. ok is false when the
// name is missing or has a wildcard. "$queue/FILTER" and "$exclusive/FILTER" are those of EMQX.
func unshared(filter string) (_ string, ok bool) {
	rest, shared := strings.CutPrefix(filter, "$share/")
	if !shared {
		filter = strings.TrimPrefix(filter, "$queue/")
		return strings.TrimPrefix(filter, "$exclusive/"), true
	}
	name, filter, _ := strings.Cut(rest, "/")
	return filter, name != "" && !strings.ContainsAny(name, "+#")
}

// matches reports whether topic matches a valid filter.
func matches(filter string, topic []byte) bool {
	if len(topic) > 0 && topic[0] == '$' && (filter[0] == '+' || filter[0] == '#') {
		return false // [MQTT-4.7.2-1]
	}
	for i := 0; i < len(filter); i++ {
		switch filter[i] {
		case '#':
			return true
		case '+':
			for len(topic) > 0 && topic[0] != '/' {
				topic = topic[1:]
			}
		default:
			if len(topic) == 0 {
				return filter[i:] == "/#" // "a/#" matches "a"
			}
			if topic[0] != filter[i] {
				return false
			}
			topic = topic[1:]
		}
	}
	return len(topic) == 0
}
