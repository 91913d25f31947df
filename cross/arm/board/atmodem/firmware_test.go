package atmodem_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cross/arm/internal/modems"
	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
)

func TestFirmwareSendsEveryReadingOverAModem(t *testing.T) {
	eachKind(t, func(t *testing.T, s setup) {
		b := newBench(t, s)
		b.begin(t, s)
		b.runFor(t, b.config(time.Second), func() { time.Sleep(5 * time.Minute) })
		require.Equal(t, 1, b.emu.Dials())
		for _, c := range b.emu.Commands() {
			t.Log(c)
			if strings.Contains(c, "SEND") {
				break
			}
		}
	})
}

func TestFirmwareSurvivesLostConnectionsAndPowerCycles(t *testing.T) {
	eachKind(t, func(t *testing.T, s setup) {
		b := newBench(t, s)
		b.begin(t, s)
		b.runFor(t, b.config(2*time.Second), func() {
			for i := range 12 {
				time.Sleep(41*time.Second + time.Duration(i)*37*time.Millisecond)
				switch i % 4 {
				case 0:
					b.hub.Drop(boardID)
				case 1:
					b.emu.Drop()
				case 2:
					b.emu.Cut()
				case 3:
					b.emu.Detach()
				}
			}
			time.Sleep(time.Minute)
		})
		require.Greater(t, b.emu.Dials(), 12)
	})
}

// faults are what may go wrong with each command.
var faults = map[string]modems.Action{
	"refused": modems.Refuse, "not answered": modems.Ignore, "rebooted": modems.Reboot,
	"with garbage": modems.Garbage, "with events": modems.Distract,
	"with events in its middle": modems.Interrupt, "hung": modems.Die,
	"cut off": modems.CutOff, "answered twice": modems.Twice, "followed by nonsense": modems.Babble,
	"obeyed in silence":      modems.HideAnswer,
	"without its connection": modems.HangUp, "without its network": modems.Detach,
}

// Each command of a session goes wrong once, in each way, and no reading is lost.
func TestEachCommandMayFail(t *testing.T) {
	every := 53
	switch {
	case *all:
		every = 1
	case testkit.Long():
		every = 5
	}
	for _, k := range kinds {
		commands := map[string]bool{}
		t.Run(k.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				b := newBench(t, k.setup)
				b.begin(t, k.setup)
				b.runFor(t, b.config(time.Second), func() {
					time.Sleep(30 * time.Second)
					b.hub.Drop(boardID)
					time.Sleep(30 * time.Second)
				})
				for _, c := range b.emu.Commands() {
					commands[nameOf(c)] = true
				}
			})
			for i, name := range slices.Sorted(maps.Keys(commands)) {
				for j, what := range slices.Sorted(maps.Keys(faults)) {
					if (len(faults)*i+j)%every != 0 {
						continue
					}
					action := faults[what]
					t.Run(name+" "+what, func(t *testing.T) {
						in(t, func(t *testing.T) { oneFault(t, k.setup, name, action) })
					})
				}
			}
		})
	}
}

// nameOf returns a command up to its first argument that changes.
func nameOf(command string) string {
	for i, c := range command {
		if c == '=' || c == '?' {
			return command[:i+1]
		}
	}
	return command
}

func oneFault(t *testing.T, s setup, name string, action modems.Action) {
	seen := 0
	s.modem = func(c *modems.Config) {
		c.Fault = func(_ int, command string) modems.Action {
			if nameOf(command) == name {
				if seen++; seen == 1 || seen == 4 {
					return action
				}
			}
			return modems.Obey
		}
	}
	b := newBench(t, s)
	b.begin(t, s)
	c := b.config(10 * time.Second)
	// A refusal to verify certificates is final, so that the client tries again after 10 minutes only.
	c.Tune = func(o *device.Options) { o.TryAgainAfter = time.Minute }
	b.runFor(t, c, func() {
		time.Sleep(2 * time.Minute)
		b.hub.Drop(boardID)
		time.Sleep(4 * time.Minute)
	})
	require.Positive(t, seen)
}
