package main

import (
	"errors"
	"flag"
	"fmt"

	"github.com/hubline-iot/hubline/testbroker"
)

// limitSettings are the flags about the hub's limits. 0: none.
type limitSettings struct{ connects, messages float64 }

// flags registers the flags.
func (s *limitSettings) flags(f *flag.FlagSet) {
	f.Float64Var(&s.connects, "connects-per-second", 0, "take this `number` of connects a second over MQTT, as the "+
		"service does by its tier and units, such as 100; 0: no limit")
	f.Float64Var(&s.messages, "messages-per-second", 0, "take this `number` of messages a second over MQTT; 0: no limit")
}

// maxLimit is the highest limit a second.
const maxLimit = 1e9

// complete checks the settings.
func (s *limitSettings) complete(broker bool) error {
	for _, f := range []struct {
		name  string
		value float64
	}{{"connects-per-second", s.connects}, {"messages-per-second", s.messages}} {
		switch {
		case !(f.value >= 0 && f.value <= maxLimit):
			return fmt.Errorf("flag -%s: %v is out of range; give up to 1e9, or 0 for no limit", f.name, f.value)
		case f.value > 0 && broker:
			return errors.New("flag -" + f.name + ": a plain broker has no such limit; leave out -broker or -" + f.name)
		}
	}
	return nil
}

func (s *limitSettings) options() testbroker.LimitOptions {
	return testbroker.LimitOptions{Connects: s.connects, Messages: s.messages}
}
