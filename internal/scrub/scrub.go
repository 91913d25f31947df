// Package scrub removes secrets from texts, and makes a peer's text safe for an error.
//
// Hubline's own errors contain no secrets. But an error may come from a callback, such as a token
// source that quotes a URL, and a peer may repeat data it received. Text finds secrets by their
// names (password, sig, AccountKey), by the scheme before them (Bearer), by their position in a URL
// and by their form (private keys, JSON web tokens, keys in base64). When in doubt, it hides the
// text.
package scrub

import "strings"

const hidden = "(hidden)"

// Text returns s with its secrets replaced by "(hidden)", and s itself if there are none. Text of a
// result is that result, but for odd texts in which "(hidden)" joins what stands around it: there
// it hides more.
func Text(s string) string {
	x := scanner{s: s, lower: lowered(s)}
	var out strings.Builder
	done := 0 // s[:done] is in out
	for i := 0; i < len(s); {
		from, to := x.secret(i)
		if from >= to || s[from:to] == hidden {
			i = max(i+1, to)
			continue
		}
		if strings.Contains(x.lower[from:to], "-----begin") {
			to = len(s) // the lines of a key follow
		}
		out.WriteString(s[done:from])
		out.WriteString(hidden)
		done, i = to, to
	}
	if done == 0 {
		return s
	}
	out.WriteString(s[done:])
	return out.String()
}

// Error returns Text of err's text, empty for nil.
func Error(err error) string {
	if err == nil {
		return ""
	}
	return Text(err.Error())
}

// Known returns s with the given secrets hidden, in any context.
func Known(s string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, hidden)
		}
	}
	return s
}
