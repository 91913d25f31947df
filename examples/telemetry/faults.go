package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
)

// scheduleTime is the duration of the schedule.
const scheduleTime = 20 * time.Second

// step is one fault of the schedule.
type step struct {
	at    time.Duration
	what  string
	fault fault.Fault
	cut   bool // cut the connection, so that the fault affects a connect
}

// schedule has faults that a device survives. Each transport gets those that its protocol has.
var schedule = []step{
	{1 * time.Second, "cuts the connection before it stores a reading",
		fault.Fault{Kind: fault.DropBeforePublish}, false},
	{2 * time.Second, "detaches the link in place of an outcome",
		fault.Fault{Kind: fault.DetachAfterMessage}, false},
	{3 * time.Second, "answers 401: another token, please",
		fault.Fault{Kind: fault.AnswerStatus, Statuses: []int{401}, Route: fault.RouteTelemetry}, false},
	{4 * time.Second, "stores a reading and cuts before it acknowledges it",
		fault.Fault{Kind: fault.DropAfterPublish}, false},
	{5 * time.Second, "answers 503 twice: come back in a second",
		fault.Fault{Kind: fault.AnswerStatus, Times: 2, RetryAfter: time.Second, Route: fault.RouteTelemetry}, false},
	{6 * time.Second, "releases a message: it wants it later", fault.Fault{Kind: fault.ReleaseMessage}, false},
	{7500 * time.Millisecond, "cuts and refuses two connects: it is not available",
		fault.Fault{Kind: fault.RefuseConnect, Times: 2}, true},
	{9500 * time.Millisecond, "cuts and never answers the next connect", fault.Fault{Kind: fault.SwallowConnack}, true},
	{12 * time.Second, "does not acknowledge a reading", fault.Fault{Kind: fault.SwallowPuback}, false},
	{14 * time.Second, "goes silent for half a second, connections stay open",
		fault.Fault{Kind: fault.HalfOpen, For: 500 * time.Millisecond}, false},
	{17 * time.Second, "is absent from the network for a second",
		fault.Fault{Kind: fault.Absent, For: time.Second}, false},
}

// sabotage is a loss that the ledger must find.
var sabotage = step{6800 * time.Millisecond, "SABOTAGE: forgets a reading that it acknowledges",
	fault.Fault{Kind: fault.Forget}, false}

// faults is a running schedule.
type faults struct {
	end      context.CancelFunc
	playing  sync.WaitGroup
	steps    []step
	injected []*testbroker.Injected // nil: its time did not come
}

// startFaults begins the schedule, if the hub is the in-process one.
func startFaults(own *setup.Device, s settings) *faults {
	ctx, end := context.WithCancel(context.Background())
	f := &faults{end: end}
	if own.Hub == nil {
		return f
	}
	for _, a := range schedule {
		if a.fault.Kind.Protocols()&own.Ports.Protocol != 0 {
			f.steps = append(f.steps, a)
		}
	}
	if s.sabotage {
		f.steps = append(f.steps, sabotage)
	}
	f.injected = make([]*testbroker.Injected, len(f.steps))
	for i, a := range f.steps {
		f.playing.Go(func() {
			select {
			case <-time.After(a.at):
			case <-ctx.Done():
				return
			}
			say("       hub %s", a.what)
			f.injected[i] = own.Hub.Inject(a.fault)
			if a.cut {
				own.Hub.Drop(own.Creds.DeviceID)
			}
		})
	}
	return f
}

// stop ends the schedule, possibly early.
func (f *faults) stop() {
	f.end()
	f.playing.Wait()
}

// missing returns an error that names the faults that did not happen. A run that ended before the
// schedule needs only the sabotage.
func (f *faults) missing() error {
	var names []string
	early := slices.Contains(f.injected, nil)
	for i, in := range f.injected {
		if (in == nil || in.Fired() == 0) && (!early || f.steps[i].fault.Kind == fault.Forget) {
			names = append(names, f.steps[i].what)
		}
	}
	if len(names) > 0 {
		return errors.New("scheduled faults that did not happen: " + strings.Join(names, "; "))
	}
	return nil
}
