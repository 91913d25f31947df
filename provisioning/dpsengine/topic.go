package dpsengine

import (
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/provisioning"
)

// filter is the topic filter of answers.
const filter = answers + "#"

const (
	registrations = "$dps/registrations/"
	answers       = registrations + "res/"
)

// userName returns the user name of CONNECT. agent is the client name that the service sees.
func userName(l *provisioning.Login, agent string) string {
	user := append([]byte(l.Resource()), "/api-version="...)
	user = append(append(user, l.APIVersion...), "&ClientVersion="...)
	return string(texts.AppendEscaped(user, agent))
}

// topicOf returns the topic of a request.
func topicOf(r *provisioning.Request, id uint16) []byte {
	t := []byte(registrations)
	switch {
	case r.Call != "":
		t = append(append(t, "POST/"...), r.Call...)
	case r.Operation != "":
		t = append(t, "GET/iotdps-get-operationstatus"...)
	default:
		t = append(t, "PUT/iotdps-register"...)
	}
	t = strconv.AppendUint(append(t, "/?$rid="...), uint64(id), 10)
	if r.Operation != "" {
		t = texts.AppendEscaped(append(t, "&operationId="...), r.Operation)
	}
	return t
}

// topicAnswer is what the topic of an answer says.
type topicAnswer struct {
	Status int
	RID    string
	After  time.Duration
}

// parseTopic parses the topic of an answer:
// "$dps/registrations/res/STATUS/?$rid=ID&retry-after=SECONDS", with the properties in any order.
// It returns false for all other topics. Unknown properties are ignored, and so is a delay that is
// not a number of seconds.
func parseTopic(topic string) (a topicAnswer, ok bool) {
	if len(topic) < len(answers)+5 || topic[:len(answers)] != answers {
		return a, false
	}
	rest := topic[len(answers):]
	for i := range 3 {
		if rest[i] < '0' || rest[i] > '9' {
			return a, false
		}
		a.Status = a.Status*10 + int(rest[i]-'0')
	}
	if rest[3:5] != "/?" || a.Status < 100 || a.Status > 599 {
		return a, false
	}
	for rest = rest[5:]; rest != ""; {
		var property string
		property, rest = split(rest, '&')
		switch key, value := split(property, '='); key {
		case "$rid":
			a.RID = value
		case "retry-after":
			a.After = seconds(value)
		}
	}
	return a, true
}

// split cuts s at the first c. strings.Cut would link more.
func split(s string, c byte) (before, after string) {
	for i := 0; i < len(s); i++ {
		if s[i] == c {
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// maxSeconds is the longest delay, a day.
const maxSeconds = 86_400

// seconds parses a number of seconds, at most maxSeconds; 0 if it is none.
func seconds(s string) time.Duration {
	n := 0
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0
		}
		n = min(n*10+int(s[i]-'0'), maxSeconds)
	}
	return time.Duration(n) * time.Second
}
