package dpsfront

import (
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

func FuzzParseTopic(f *testing.F) {
	for _, s := range []string{
		registerTopic + "?$rid=1", pollTopic + "?$rid=a-b&operationId=5.a.b", pollTopic + "?operationId=5&$rid=1&&=&x",
		registerTopic + "?$rid=", registerTopic + "?$rid=1&$rid=#", pollTopic + "?$rid=1&operationId=%26%23",
		pollTopic, registerTopic + "$rid=1", "", "?",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		op, rid, operation, err := parseTopic(s)
		if err != nil {
			if len(rid)+len(operation) != 0 || op != 0 {
				t.Fatalf("%q: %v %q %q with %v", s, op, rid, operation, err)
			}
			return
		}
		if rid == "" || len(rid) > hub.MaxRequestID || strings.ContainsAny(rid, "&#+") ||
			!strings.Contains(s, "$rid="+rid) || (op == dpsdata.OperationPoll) != strings.HasPrefix(s, pollTopic) {
			t.Fatalf("%q read as %v %q %q", s, op, rid, operation)
		}
	})
}

func FuzzParseUserName(f *testing.F) {
	for _, s := range []string{
		"0ne/registrations/reg-1/api-version=2019-03-31", "0ne/registrations/reg-1/?api-version=a%20b&ClientVersion=x%2f1",
		"0ne/Registrations/r/api-version=1&api-version=2", "0ne/registrations/r/", "/registrations//", "///", "",
		"0ne/registrations/r/api-version=%zz",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		scope, c, err := parseUserName(s)
		if c == nil || strings.Contains(scope+c.ID, "/") {
			t.Fatalf("%q read as %q %+v", s, scope, c)
		}
		if err == nil && !strings.HasPrefix(s, scope+"/") {
			t.Fatalf("%q read as %q %+v", s, scope, c)
		}
	})
}
