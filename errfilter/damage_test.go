package errfilter_test

import (
	"errors"
	"testing"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

func TestDamageIsRetriedAFewTimesInARow(t *testing.T) {
	damaged := &transport.Error{Kind: transport.Unsupported, Proto: "mqtt", Err: wrapped{transport.ErrMaybeDamaged}}
	untrusted := &transport.Error{Kind: transport.Untrusted}
	var d errfilter.Damage
	judge := func(err error, kind transport.Kind, retry bool) {
		t.Helper()
		got := d.Judge(err)
		if rule := errfilter.Of(got); rule.Kind != kind || rule.Retry != retry {
			t.Errorf("Judge(%v) = %v, rule %+v, want kind %v, retry %v", err, got, rule, kind, retry)
		}
	}
	row := func() {
		for range errfilter.MaxDamage {
			judge(damaged, transport.Network, true)
		}
	}
	row()
	judge(damaged, transport.Unsupported, false)
	judge(wrapped{damaged}, transport.Unsupported, false)
	judge(transport.Timeout, transport.Timeout, true) // another failure resets the count
	row()
	judge(untrusted, transport.Untrusted, false)
	row()
	if d.Judge(nil) != nil {
		t.Error("Judge(nil) is not nil")
	}
	row()
	judge(damaged, transport.Unsupported, false)
	if damaged.Kind != transport.Unsupported {
		t.Error("Judge changed an error that others may hold")
	}
	if got := d.Judge(untrusted); !errors.Is(got, untrusted) {
		t.Errorf("another error was changed: %v", got)
	}
}
