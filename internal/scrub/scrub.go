// Package scrub takes secrets out of texts, and makes a peer's text fit for an error.
//
// Hubline's own errors hold no secret. But an error may come from a callback, such as a token
// source that quotes the URL it asked, and a peer may repeat what it was sent. Text finds secrets
// by their names (password, sig, AccountKey), by the scheme before them (Bearer), by their place in
// a URL and by their form (private keys, JSON web tokens, keys in base64). It hides too much rather
// than too little.
package scrub

import (
	"strings"
	"unicode/utf8"
)

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

// KnownCause is Cause, and hides the given secrets.
func KnownCause(err error, secrets ...string) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); Known(text, secrets...) != text {
		return &cause{err, Peer(Known(text, secrets...))}
	}
	return Cause(err)
}

// MaxPeer bounds what is kept of a peer's text.
const MaxPeer = 1 << 10

// Peer makes a peer's text fit for an error: secrets hidden, on one line, control and formatting
// characters and invalid UTF-8 escaped (\n, \x1b), and no longer than MaxPeer and "...".
func Peer(s string) string {
	cut := ""
	if len(s) > 4*MaxPeer {
		s, cut = s[:4*MaxPeer], "..."
		s = s[:strings.LastIndexAny(s, " \n")+1] // what was cut in two might not look like a secret
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

// Cause returns err with a text that is fit for an error, which is err itself where it is so.
func Cause(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if fit := Peer(text); fit != text {
		return &cause{err, fit}
	}
	return err
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

// shown reports whether a character may stand in a log: it moves no cursor and turns no text
// around.
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

type scanner struct {
	s, lower string
	runEnd   int // no run of letters is looked at twice
	depth    int // of nested
}

// secret returns where the secret is that something at i announces, or that begins there. Without
// one, from >= to, and the search goes on at to, if that is beyond i.
func (x *scanner) secret(i int) (from, to int) {
	c := x.s[i]
	switch {
	case c == ':' || c == '%':
		return x.userinfo(i)
	case c == '-':
		if from, to := x.pem(i); to > from {
			return from, to
		}
		return x.flag(i)
	case i < x.runEnd || !inName(c):
		return 0, 0
	}
	// A run of letters, digits and the like: a name, or a secret by its form.
	end := i
	for end < len(x.s) && inName(x.s[end]) {
		end++
	}
	x.runEnd = end
	begin := i + x.escapes(i, end)
	if to := x.byForm(begin); to > begin {
		return begin, to
	}
	if from, to := x.scheme(begin, end); to > from {
		return from, to
	}
	return x.named(begin, end)
}

func inName(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.'
}

// escapes is how many bytes of the run from i to end belong to an escape before it: of %26 as in
// URLs, also %2526, of \u0026 as in JSON, and \n.
func (x *scanner) escapes(i, end int) (n int) {
	if i == 0 {
		return 0
	}
	run := x.lower[i:end]
	switch x.s[i-1] {
	case '%':
		for strings.HasPrefix(run[n:], "25") {
			n += 2
		}
		if len(run) >= n+2 && isHex(run[n]) && isHex(run[n+1]) {
			n += 2
		}
	case '\\':
		switch {
		case len(run) >= 5 && run[0] == 'u' && isHex(run[1]) && isHex(run[2]) && isHex(run[3]) && isHex(run[4]):
			n = 5
		case len(run) >= 3 && run[0] == 'x' && isHex(run[1]) && isHex(run[2]):
			n = 3
		case len(run) >= 1 && strings.IndexByte("nrtbf", run[0]) >= 0:
			n = 1
		}
	}
	return n
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }

// maxUserinfo bounds the search for the end of a URL's user and password.
const maxUserinfo = 1 << 10

// userinfo finds "user:password@" of a URL, also of one that is escaped for another URL.
func (x *scanner) userinfo(i int) (from, to int) {
	end, at := "/?#\\<> \t\r\n\"'`|", "@"
	rest := x.lower[i:]
	switch {
	case strings.HasPrefix(rest, "://"):
		from = i + len("://")
	case strings.HasPrefix(rest, "%3a%2f%2f"):
		from, end, at = i+len("%3a%2f%2f"), "/?#&\\<> \t\r\n\"'`|", "%40"
	default:
		return 0, 0
	}
	host := x.lower[from:min(len(x.s), from+maxUserinfo)]
	if n := strings.IndexAny(host, end); n >= 0 {
		host = host[:n]
	}
	if at == "%40" {
		if n := strings.Index(host, "%2f"); n >= 0 {
			host = host[:n]
		}
	}
	if n := strings.LastIndex(host, at); n > 0 {
		return from, from + n
	}
	return 0, 0
}

// pem finds a private key.
func (x *scanner) pem(i int) (from, to int) {
	const begin, end = "-----begin ", "-----end "
	rest := x.lower[i:]
	if !strings.HasPrefix(rest, begin) {
		return 0, 0
	}
	label := rest[len(begin):]
	n := strings.Index(label, "-----")
	if n < 0 {
		n = len(label)
	}
	if !strings.Contains(label[:n], "private key") {
		return 0, 0
	}
	from = i + len(begin) + n
	if strings.HasPrefix(x.s[from:], "-----") {
		from += len("-----")
	}
	if n := strings.Index(x.lower[from:], end); n >= 0 {
		return from, from + n
	}
	return from, len(x.s)
}

// flag finds "--password value" and "-u user:password" of a command line.
func (x *scanner) flag(i int) (from, to int) {
	if i > 0 && strings.IndexByte(" \t\"'`[(", x.s[i-1]) < 0 {
		return 0, 0
	}
	if rest := x.s[i:]; strings.HasPrefix(rest, "-u ") || strings.HasPrefix(rest, "-u\t") {
		from = i + len("-u ")
		if to = x.unquoted(from, false); strings.IndexByte(x.s[from:to], ':') >= 0 {
			return from, to
		}
		return 0, 0
	}
	if !strings.HasPrefix(x.s[i:], "--") {
		return 0, 0
	}
	name := i + 2
	end := name
	for end < len(x.s) && inName(x.s[end]) {
		end++
	}
	if end == len(x.s) || x.s[end] != ' ' || nameClass(x.s[name:end]) == harmless || end+1 == len(x.s) ||
		x.s[end+1] == '-' {
		return 0, 0
	}
	return x.value(end+1, false)
}

// schemes of HTTP's authentication are followed by a secret.
var schemes = [...]string{"bearer", "basic", "negotiate", "ntlm", "sharedkey", "aws4-hmac-sha256"}

// scheme finds the secret behind the name of a scheme.
func (x *scanner) scheme(begin, end int) (from, to int) {
	if end >= len(x.s) || x.s[end] != ' ' && x.s[end] != '\t' && x.s[end] != '+' && !strings.HasPrefix(x.s[end:], "%20") {
		return 0, 0
	}
	name := x.lower[begin:end]
	for _, s := range schemes {
		if name != s {
			continue
		}
		from = x.skipSpace(end)
		to = x.unquoted(from, false)
		if isWord(x.s[from:to]) || isParameter(x.s[from:to]) {
			return 0, 0
		}
		return from, to
	}
	return 0, 0
}

// isWord reports whether s is a word of a sentence, rather than a secret.
func isWord(s string) bool {
	s = strings.Trim(s, ".,:;!?")
	for i := range len(s) {
		if c := s[i]; !('a' <= c && c <= 'z' || c == '\'' || c == '-' || i == 0 && 'A' <= c && c <= 'Z') {
			return false
		}
	}
	return len(s) < 16
}

// isParameter reports whether s is like realm="x", which a server asks for credentials with.
func isParameter(s string) bool {
	name, value, ok := strings.Cut(s, "=")
	return ok && isWord(name) && value != "" && value[0] != '='
}

func (x *scanner) skipSpace(i int) int {
	for i < len(x.s) {
		switch {
		case x.s[i] == ' ' || x.s[i] == '\t' || x.s[i] == '+':
			i++
		case strings.HasPrefix(x.s[i:], "%20"):
			i += 3
		default:
			return i
		}
	}
	return i
}

// quotes are what names and values stand in, escaped ones included.
var quotes = [...]string{`\\\"`, `\"`, `\'`, `\u0022`, `\u0027`, "%2522", "%22", "%27", "&quot;", "&#34;", "&#39;",
	"&apos;", `"`, "'", "`"}

// quoteAt returns the quote that begins at i, empty for none.
func (x *scanner) quoteAt(i int) string {
	for _, q := range quotes {
		if strings.HasPrefix(x.lower[i:], q) {
			return q
		}
	}
	return ""
}

// separators are between a name and its value. The longer ones are first.
var separators = [...]struct {
	text    string
	escaped bool // as in a URL within a URL: the value ends at an escape, too
	prose   bool // may also stand in a sentence
}{
	{"%253d", true, false}, {"%253a", true, false}, {"%3d", true, false}, {"%3a", true, false},
	{`\u003d`, false, false}, {`\u003a`, false, false}, {"&#61;", false, false},
	{"=>", false, false}, {":=", false, false}, {"==", false, false}, {"=", false, false}, {":", false, true},
	{">", false, false},
}

// named finds the value that stands behind the name between begin and end.
func (x *scanner) named(begin, end int) (from, to int) {
	class := nameClass(x.s[begin:end])
	if class == harmless || class == inQuery && !x.inQuery(begin) {
		return 0, 0
	}
	at := end
	quote := x.quoteAt(at)
	at = x.skipSpace(at + len(quote))
	for _, sep := range separators {
		if !strings.HasPrefix(x.lower[at:], sep.text) {
			continue
		}
		at += len(sep.text)
		prose := sep.prose && quote == "" && at < len(x.s) && x.s[at] == ' '
		if class == inAssignment && sep.prose && quote == "" {
			return 0, 0
		}
		if at = x.skipSpace(at); at == len(x.s) {
			return 0, 0
		}
		if class == header {
			return x.header(at, prose)
		}
		if from, to = x.value(at, sep.escaped); from != at { // in quotes
			if q := x.quoteAt(at); q != "" && x.attribute(x.skipSpace(min(to+len(q), len(x.s)))) {
				return 0, 0 // the name comes
			}
			return from, to
		}
		more := x.nested(from)
		if more <= to && prose && class != password && isWord(x.s[from:to]) {
			return 0, 0
		}
		return from, max(to, more)
	}
	if x.attribute(at) { // <add key="Password" value="..."/>
		return x.value(at+len("value="), false)
	}
	return 0, 0
}

// nested returns the end of the secret that what begins at i announces, as in "token: Bearer x".
func (x *scanner) nested(i int) (to int) {
	if x.depth == 8 {
		return 0
	}
	x.depth++
	defer func() { x.depth-- }()
	end := i
	for end < len(x.s) && inName(x.s[end]) {
		end++
	}
	if _, to = x.scheme(i, end); to == 0 {
		_, to = x.named(i, end)
	}
	return to
}

func (x *scanner) attribute(at int) bool { return strings.HasPrefix(x.lower[at:], "value=") }

// inQuery reports whether a name is that of a parameter in a URL.
func (x *scanner) inQuery(begin int) bool {
	before := x.lower[:begin]
	for _, mark := range [...]string{"?", "&", "&amp;", "%3f", "%26", "%253f", "%2526", `\u0026`, `\u003f`, "#"} {
		if strings.HasSuffix(before, mark) {
			return true
		}
	}
	return false
}

// value returns the value that begins at i, less its quotes.
func (x *scanner) value(i int, escaped bool) (from, to int) {
	if quote := x.quoteAt(i); quote != "" {
		from = i + len(quote)
		for at := from; at < len(x.s); at++ {
			if x.s[at] == '\n' || strings.HasPrefix(x.lower[at:], quote) {
				return from, at
			}
			if x.s[at] == '\\' && len(quote) == 1 && at+1 < len(x.s) && x.s[at+1] != '\n' {
				at++ // the next one is escaped
			}
		}
		return from, len(x.s)
	}
	if x.s[i] == '[' {
		if n := strings.IndexAny(x.s[i:], "]\n"); n > 0 {
			return i + 1, i + n
		}
		return i + 1, len(x.s)
	}
	if x.s[i] == '{' {
		return 0, 0 // its members are looked at
	}
	return i, x.unquoted(i, escaped)
}

// unquoted returns the end of a value without quotes.
func (x *scanner) unquoted(i int, escaped bool) int {
	if strings.HasPrefix(x.s[i:], hidden) && x.ends(i+len(hidden)) {
		return i + len(hidden)
	}
	for ; i < len(x.s); i++ {
		switch c := x.s[i]; {
		case strings.IndexByte("&; \t\r\n<>|", c) >= 0:
			return i
		case strings.IndexByte(",\"'`)]}", c) >= 0:
			if x.ends(i + 1) {
				return i
			}
		case c == '\\':
			rest := x.lower[i:]
			if strings.HasPrefix(rest, `\u0026`) || strings.HasPrefix(rest, `\u0022`) || strings.HasPrefix(rest, `\"`) ||
				strings.HasPrefix(rest, `\\"`) ||
				strings.HasPrefix(rest, `\n`) && x.ends(i+2) || strings.HasPrefix(rest, `\r\n`) {
				return i
			}
		case c == '%' && escaped:
			for _, end := range [...]string{"%26", "%2526", "%22", "%27", "%3b", "%20", "%0a", "%0d", "%3c", "%7d"} {
				if strings.HasPrefix(x.lower[i:], end) {
					return i
				}
			}
		}
	}
	return len(x.s)
}

// ends reports whether what stands before i may be the end of a value.
func (x *scanner) ends(i int) bool {
	return i >= len(x.s) || strings.IndexByte("&;, \t\r\n\"'`)]}<>:.\\|/%", x.s[i]) >= 0
}

// header returns the value of a header that holds credentials: the rest of the line.
func (x *scanner) header(i int, prose bool) (from, to int) {
	if x.quoteAt(i) != "" || x.s[i] == '[' {
		return x.value(i, false)
	}
	word := x.unquoted(i, false)
	if prose && isWord(x.s[i:word]) && !x.isScheme(i, word) {
		return 0, 0
	}
	if x.isScheme(i, word) && word < len(x.s) {
		i = x.skipSpace(word) // the scheme may be seen
	}
	to = len(x.s)
	for _, end := range [...]string{"\n", "\r", `\n`, `\r`, "%0d", "%0a", "\"", "' ", "'\""} {
		if n := strings.Index(x.lower[i:to], end); n >= 0 {
			to = i + n
		}
	}
	return i, to
}

func (x *scanner) isScheme(from, to int) bool {
	name := x.lower[from:to]
	for _, s := range schemes {
		if s == name {
			return true
		}
	}
	return name == "sharedaccesssignature" || name == "digest" || name == "token"
}

// class is how a name announces a secret.
type class uint8

const (
	harmless     class = iota
	password           // whatever stands behind it is secret
	ordinary           // a word in a sentence behind it is not
	inAssignment       // only behind "=", or where names are quoted
	inQuery            // only in a URL's query
	header             // the rest of the line is
)

// endings are what the names of secrets end with, whatever is before that.
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

// lasts are the last words of names of secrets.
var lasts = [...]struct {
	text string
	class
}{
	{"sig", inAssignment}, {"key", inAssignment}, {"pass", inAssignment}, {"pw", inAssignment}, {"auth", inAssignment},
	{"jwt", ordinary}, {"otp", inAssignment}, {"sid", inAssignment},
	{"code", inQuery}, {"assertion", inAssignment}, {"sas", inAssignment}, {"psk", inAssignment}, {"pat", inAssignment},
}

// publicKeys are words before "key" that make it none of a lock's.
var publicKeys = [...]string{"public", "partition", "row", "routing", "cache", "sort", "foreign", "registry", "config",
	"property", "map", "hot"}

// nameClass says what is behind a name, by its end: SharedAccessKeyName is not SharedAccessKey.
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

// forms are what secrets begin with, and how long they are at least.
var forms = [...]struct {
	begin string
	least int
}{
	{"eyJ", 20}, {"AKIA", 20}, {"ASIA", 20}, {"AIza", 35}, {"ghp_", 20}, {"gho_", 20}, {"ghu_", 20}, {"ghs_", 20},
	{"ghr_", 20}, {"github_pat_", 20},
	{"glpat-", 20}, {"xoxb-", 16}, {"xoxp-", 16}, {"xoxa-", 16}, {"xoxs-", 16}, {"sk_live_", 16}, {"sk_test_", 16},
	{"rk_live_", 16}, {"npm_", 30}, {"hvs.", 20}, {"SG.", 30},
}

// byForm returns the end of the secret that begins at i, which its form gives away; i or less for
// none.
func (x *scanner) byForm(i int) int {
	rest := x.s[i:]
	for _, f := range forms {
		if !strings.HasPrefix(rest, f.begin) {
			continue
		}
		n := 0
		for n < len(rest) && inName(rest[n]) {
			n++
		}
		if n >= f.least {
			return i + n
		}
	}
	return x.key(i)
}

// key finds base64 that is as long as keys are, and as mixed.
func (x *scanner) key(i int) int {
	if i > 0 && (x.s[i-1] == '/' || x.s[i-1] == '+') {
		return 0 // its begin was looked at
	}
	n, changes, slashes, last := 0, 0, 0, 0
	for ; i+n < len(x.s); n++ {
		kind := 0
		switch c := x.s[i+n]; {
		case 'a' <= c && c <= 'z':
			kind = 1
		case 'A' <= c && c <= 'Z':
			kind = 2
		case '0' <= c && c <= '9':
			kind = 3
		case c == '/':
			slashes++
			kind = 4
		case c == '+' || c == '-' || c == '_':
			kind = 4
		}
		if kind == 0 {
			break
		}
		if kind != last && n > 0 {
			changes++
		}
		last = kind
	}
	pad := 0
	for pad < 2 && i+n+pad < len(x.s) && x.s[i+n+pad] == '=' {
		pad++
	}
	mixed := changes*5 >= n*2
	switch {
	case pad > 0 && n >= 22 && (n+pad)%4 == 0 && mixed && x.ends(i+n+pad):
		return i + n + pad
	case n >= 40 && slashes <= n/16 && changes*2 >= n:
		return i + n
	}
	return 0
}

// lowered is s with ASCII letters in lower case, byte for byte.
func lowered(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
