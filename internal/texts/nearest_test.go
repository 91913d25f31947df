package texts_test

import (
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/internal/texts"
)

func TestTheNearestNameTakesTheFewestEdits(t *testing.T) {
	names := []string{"mqtt", "amqp", "https", "dps-mqtt", "keep"}
	for name, want := range map[string]string{
		"mqttt": "mqtt", "mqt": "mqtt", "ampq": "amqp", "http": "https", "dps_mqtt": "dps-mqtt", "kep": "keep",
		strings.Repeat("x", 1<<20): "", "logg": "", "x": "",
	} {
		if got := texts.Nearest(name, names); got != want {
			t.Errorf("%.20q: %q, want %q", name, got, want)
		}
	}
	if got := texts.Nearest("x", nil); got != "" {
		t.Errorf("%q of no names", got)
	}
}
