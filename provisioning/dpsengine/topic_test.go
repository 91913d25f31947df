package dpsengine

import (
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/provisioning"
)

func TestParse(t *testing.T) {
	for topic, want := range map[string]topicAnswer{
		"$dps/registrations/res/202/?$rid=1&retry-after=3":                             {202, "1", 3 * time.Second},
		"$dps/registrations/res/202/?retry-after=120&$rid=1":                           {202, "1", 120 * time.Second},
		"$dps/registrations/res/429/?$rid=2&retry-after=5":                             {429, "2", 5 * time.Second},
		"$dps/registrations/res/200/?$rid=a&&x&=y&z=":                                  {200, "a", 0},
		"$dps/registrations/res/200/?":                                                 {200, "", 0},
		"$dps/registrations/res/200/?$rid":                                             {200, "", 0},
		"$dps/registrations/res/200/?$rid=1&retry-after=-5":                            {200, "1", 0},
		"$dps/registrations/res/200/?$rid=1&retry-after=1.5":                           {200, "1", 0},
		"$dps/registrations/res/200/?$rid=1&retry-after=Thu, 01 Jan 2026 00:02:00 GMT": {200, "1", 0},
		"$dps/registrations/res/200/?$rid=1&retry-after=" + strings.Repeat("9", 40):    {200, "1", 24 * time.Hour},
		"$dps/registrations/res/200/?$rid=1&retry-after=86400":                         {200, "1", 24 * time.Hour},
		"$dps/registrations/res/200/?$rid=1&retry-after=86401":                         {200, "1", 24 * time.Hour},
		"$dps/registrations/res/200/?no-retry-after=9&$rid=1":                          {200, "1", 0},
		"$dps/registrations/res/200/?$rid=" + strings.Repeat("r", 80):                  {200, strings.Repeat("r", 80), 0},
	} {
		if got, ok := parseTopic(topic); !ok || got != want {
			t.Errorf("%s: %+v, %v", topic, got, ok)
		}
	}
	for _, topic := range []string{"", "$dps/registrations/res", "$dps/registrations/res/", "$dps/registrations/res/abc/?",
		"$dps/registrations/res/20/?$rid=1", "$dps/registrations/res/2000/?$rid=1", "$dps/registrations/res/200",
		"$dps/registrations/res/200/$rid=1", "$dps/registrations/res/999/?$rid=1", "$iothub/registrations/res/200/?$rid=1"} {
		if got, ok := parseTopic(topic); ok {
			t.Errorf("%s: %+v", topic, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("$dps/registrations/res/202/?$rid=1&retry-after=3")
	f.Add("$dps/registrations/res/202/?retry-after=120&$rid=1&%=")
	f.Fuzz(func(t *testing.T, topic string) {
		a, ok := parseTopic(topic)
		if ok && (a.Status < 100 || a.Status > 599 || a.After < 0 || a.After > maxSeconds*time.Second ||
			!strings.Contains(topic, a.RID) || !strings.HasPrefix(topic, answers)) {
			t.Fatalf("%q: %+v", topic, a)
		}
	})
}

func TestOperationsAreEncoded(t *testing.T) {
	got := string(topicOf(&provisioning.Request{Operation: "5.a+b/#&c"}, 65535))
	if got != "$dps/registrations/GET/iotdps-get-operationstatus/?$rid=65535&operationId=5.a%2Bb%2F%23%26c" {
		t.Error(got)
	}
}
