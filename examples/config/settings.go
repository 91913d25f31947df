package main

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/twin"
)

// settings are the desired properties of the device.
type settings struct {
	// Interval is the time between two messages in seconds.
	Interval float64 `json:"interval"`
	Retry    policy  `json:"retry"`
	// Level is that of the log: debug, info, warn or error.
	Level string `json:"level"`
}

// policy is a retry policy by name. Times are in seconds.
type policy struct {
	Name string  `json:"name"`
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
}

func usual() settings { return settings{1, policy{"exponential", 0.1, 10}, "info"} }

// policies are the retry policies by name.
var policies = map[string]func(p policy) retrypolicy.Policy{
	"exponential": func(p policy) retrypolicy.Policy {
		return retrypolicy.ExponentialBackoffWithJitter{C: seconds(p.Min), Cmin: seconds(p.Min), Cmax: seconds(p.Max)}
	},
	"fixed": func(p policy) retrypolicy.Policy { return retrypolicy.Fixed{Delay: seconds(p.Max)} },
	"none":  func(policy) retrypolicy.Policy { return retrypolicy.NoRetry{} },
}

// maxSeconds is the longest time in the settings.
const maxSeconds = 24 * 60 * 60

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// check names the first field with an invalid value, and what to give.
func check(s settings) error {
	wrong := func(field, format string, args ...any) error {
		return &twin.FieldError{Field: field, Err: fmt.Errorf(format, args...)}
	}
	if !(s.Interval >= 0.01 && s.Interval <= maxSeconds) {
		return wrong("interval", "give seconds from 0.01 to %d", maxSeconds)
	}
	if _, err := level(s.Level); err != nil {
		return wrong("level", "give debug, info, warn or error")
	}
	make, ok := policies[s.Retry.Name]
	if !ok {
		return wrong("retry.name", "give one of %s", strings.Join(slices.Sorted(maps.Keys(policies)), ", "))
	}
	for field, value := range map[string]float64{"retry.min": s.Retry.Min, "retry.max": s.Retry.Max} {
		if !(value >= 0.001 && value <= maxSeconds) {
			return wrong(field, "give seconds from 0.001 to %d", maxSeconds)
		}
	}
	if err := retrypolicy.Validate(make(s.Retry)); err != nil {
		return wrong("retry", "%w", err)
	}
	return nil
}

func level(name string) (l slog.Level, err error) {
	err = l.UnmarshalText([]byte(name))
	return l, err
}
