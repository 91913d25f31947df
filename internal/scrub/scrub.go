// Package scrub takes secrets out of texts, and makes a peer's text fit for an error.
//
// Hubline's own errors hold no secret. But an error may come from a callback, such as a token
// source that quotes the URL it asked, and a peer may repeat what it was sent. Text finds secrets
// by their names (password, sig, AccountKey), by the scheme before them (Bearer), by their place in
// a URL and by their form (private keys, JSON web tokens, keys in base64). It hides too much rather
// than too little.
package scrub

import "strings"

const hidden = "(hidden)"

// Text returns s with its secrets replaced by "(hidden)". It returns s itself when there are none,
// and so for a text that it returned before.
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

// Error is Text of err's text, empty without an error.
func Error(err error) string {
	if err == nil {
		return ""
	}
	return Text(err.Error())
}

// Known returns s with the given secrets hidden, whatever stands before them.
func Known(s string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, hidden)
		}
	}
	return s
}
