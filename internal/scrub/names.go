package scrub

import "strings"

// class says how a name announces a secret.
type class uint8

const (
	harmless     class = iota
	password           // any value is secret
	ordinary           // a value is secret unless it is a word of a sentence
	inAssignment       // a value is secret only after "=", or if names are quoted
	inQuery            // a value is secret only in a URL's query
	header             // the rest of the line is secret
)

// endings are endings of secrets' names.
var endings = [...]struct {
	text string
	class
}{
	{"password", password}, {"passwd", password}, {"passphrase", password}, {"passwort", password}, {"pwd", password},
	{"passcode", password},
	{"secret", ordinary}, {"token", ordinary}, {"apikey", ordinary}, {"accesskey", ordinary}, {"accountkey", ordinary},
	{"secretkey", ordinary},
	{"privatekey", ordinary}, {"authkey", ordinary}, {"masterkey", ordinary}, {"sharedkey", ordinary},
	{"signingkey", ordinary}, {"encryptionkey", ordinary},
	{"primarykey", ordinary}, {"secondarykey", ordinary}, {"symmetrickey", ordinary}, {"subscriptionkey", ordinary},
	{"storagekey", ordinary}, {"functionskey", ordinary},
	{"sessionid", ordinary}, {"sessid", ordinary}, {"signature", inAssignment}, {"credential", inAssignment},
	{"credentials", inAssignment},
	{"authorization", header}, {"cookie", header},
}

// lasts are last words of secrets' names.
var lasts = [...]struct {
	text string
	class
}{
	{"sig", inAssignment}, {"key", inAssignment}, {"pass", inAssignment}, {"pw", inAssignment}, {"auth", inAssignment},
	{"jwt", ordinary}, {"otp", inAssignment}, {"sid", inAssignment},
	{"code", inQuery}, {"assertion", inAssignment}, {"sas", inAssignment}, {"psk", inAssignment}, {"pat", inAssignment},
}

// publicKeys are words before "key" that make the name harmless.
var publicKeys = [...]string{"public", "partition", "row", "routing", "cache", "sort", "foreign", "registry", "config",
	"property", "map", "hot"}

// nameClass returns the class of a name by its end: SharedAccessKeyName is not SharedAccessKey.
func nameClass(name string) class {
	name = strings.Trim(name, "_-.")
	for len(name) > 0 && '0' <= name[len(name)-1] && name[len(name)-1] <= '9' { // password2
		name = strings.TrimRight(name[:len(name)-1], "_-.")
	}
	joined := make([]byte, 0, 64)
	word := 0 // where the last word begins in joined
	for i := max(0, len(name)-64); i < len(name); i++ {
		c := name[i]
		switch {
		case c == '_' || c == '-' || c == '.':
			word = len(joined)
			continue
		case 'A' <= c && c <= 'Z' && i > 0 && 'a' <= name[i-1] && name[i-1] <= 'z':
			word = len(joined)
		}
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		joined = append(joined, c)
	}
	all, last := string(joined), string(joined[word:])
	for _, e := range endings {
		if strings.HasSuffix(all, e.text) {
			return e.class
		}
	}
	for _, l := range lasts {
		if last != l.text {
			continue
		}
		if last == "key" {
			for _, p := range publicKeys {
				if strings.HasSuffix(all[:word], p) {
					return harmless
				}
			}
		}
		if l.class == inQuery && word > 0 {
			return harmless // errorcode, status_code
		}
		return l.class
	}
	return harmless
}
