package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// scheduleTime is the duration of the schedule.
const scheduleTime = 20 * time.Second

// step is one fault of the schedule.
type step struct {
	at    time.Duration
	what  string
	fault fault.Fault
	cut   bool // cut the connection, so that the fault affects a connect
	// only limits the fault to these protocols; zero: all that have it.
	only hubdata.Protocol
}

// schedule has the faults of the hub that a device can survive. Each transport gets those that its
// protocol has.
var schedule = []step{
	{1000 * time.Millisecond, "cuts the connection before it stores a reading",
		fault.Fault{Kind: fault.DropBeforePublish}, false, 0},
	{1300 * time.Millisecond, "resets the connection when it has a request",
		fault.Fault{Kind: fault.ResetBeforeRequest, Route: fault.RouteTelemetry}, false, 0},
	{1600 * time.Millisecond, "detaches the link in place of an outcome",
		fault.Fault{Kind: fault.DetachAfterMessage}, false, 0},
	{2200 * time.Millisecond, "cuts it in the middle of a reading", fault.Fault{Kind: fault.DropDuringPublish},
		false, 0},
	{2800 * time.Millisecond, "ends the session", fault.Fault{Kind: fault.EndOnMessage}, false, 0},
	{3100 * time.Millisecond, "does what it is asked and answers 500", fault.Fault{Kind: fault.AnswerStatusAfter,
		Statuses: []int{500}, Route: fault.RouteTelemetry}, false, 0},
	{3400 * time.Millisecond, "stores a reading and cuts before the PUBACK",
		fault.Fault{Kind: fault.DropAfterPublish}, false, 0},
	{4000 * time.Millisecond, "closes the connection in order", fault.Fault{Kind: fault.CloseOnMessage}, false,
		0},
	{4300 * time.Millisecond, "answers 401: another token, please", fault.Fault{Kind: fault.AnswerStatus,
		Statuses: []int{401}, Route: fault.RouteTelemetry}, false, 0},
	{4600 * time.Millisecond, "cuts after the 20th PUBACK from now", fault.Fault{Kind: fault.DropAfterPuback,
		After: 19}, false, 0},
	{5200 * time.Millisecond, "releases a message: it wants it later", fault.Fault{Kind: fault.ReleaseMessage},
		false, 0},
	{5500 * time.Millisecond, "answers 503 twice: come back in a second", fault.Fault{Kind: fault.AnswerStatus,
		Times: 2, RetryAfter: time.Second, Route: fault.RouteTelemetry}, false, 0},
	{5800 * time.Millisecond, "cuts and refuses two connects with CONNACK 3",
		fault.Fault{Kind: fault.RefuseConnect, Code: 3, Times: 2}, true, 0},
	{7200 * time.Millisecond, "cuts and is 600 ms late with the CONNACK", fault.Fault{Kind: fault.SlowConnack,
		Delay: 600 * time.Millisecond}, true, 0},
	{8600 * time.Millisecond, "cuts and drops the next connect unanswered", fault.Fault{Kind: fault.DropConnect},
		true, 0},
	{9600 * time.Millisecond, "cuts and never answers the next connect", fault.Fault{Kind: fault.SwallowConnack},
		true, 0},
	{11400 * time.Millisecond, "delays 50 PUBACKs by 300 ms", fault.Fault{Kind: fault.SlowPuback, Times: 50,
		Delay: 300 * time.Millisecond}, false, hubdata.MQTT | hubdata.AMQP},
	{11400 * time.Millisecond, "takes 300 ms for each of 4 answers", fault.Fault{Kind: fault.SlowAnswer,
		Times: 4, Delay: 300 * time.Millisecond, Route: fault.RouteTelemetry}, false, 0},
	{12600 * time.Millisecond, "swallows a PUBACK", fault.Fault{Kind: fault.SwallowPuback}, false, 0},
	{14400 * time.Millisecond, "throttles for 1 s: 20 PUBACKs a second, CONNACK 3",
		fault.Fault{Kind: fault.Throttle, Rate: 20, Limit: 60, For: time.Second}, false,
		hubdata.MQTT | hubdata.AMQP},
	{15900 * time.Millisecond, "goes silent for 0.5 s, connections stay open", fault.Fault{Kind: fault.HalfOpen,
		For: 500 * time.Millisecond}, false, 0},
	{18200 * time.Millisecond, "is absent from the network for 1 s", fault.Fault{Kind: fault.Absent,
		For: time.Second}, false, 0},
	// last, because the device needs time after it
	{19600 * time.Millisecond, "throttles for 1 s: 4 requests a second, 429", fault.Fault{Kind: fault.Throttle,
		Rate: 4, For: time.Second}, false, hubdata.HTTP},
}

// sabotage is a loss that the ledger must detect.
var sabotage = step{6800 * time.Millisecond, "SABOTAGE: forgets a reading that it acknowledges",
	fault.Fault{Kind: fault.Forget}, false, 0}

// faultyHub is the in-process hub with its schedule.
type faultyHub struct {
	out    *printer
	hub    *testbroker.Hub
	device string
	addr   string

	protocol hubdata.Protocol

	steps   []step
	ctx     context.Context // of the schedule; stop ends it
	stop    context.CancelFunc
	playing sync.WaitGroup
	mu      sync.Mutex // guards played
	played  []*testbroker.Injected
	account func() error
}

func newFaultyHub(out *printer, ports setup.Ports) (*faultyHub, error) {
	s := &faultyHub{out: out, protocol: ports.Protocol}
	s.ctx, s.stop = context.WithCancel(context.Background())
	hub, err := testbroker.New(&testbroker.Options{OnEvent: func(e event.Event) {
		if e.Kind == event.FaultFired && e.Fault != fault.SlowPuback && e.Fault != fault.Throttle {
			out.line("       hub %v", e)
		}
	}})
	if err != nil {
		return nil, err
	}
	s.hub = hub
	addr, err := hub.Listen(ports.Hub, "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, hub.Close())
	}
	d, err := hub.AddDevice("roof-7")
	if err != nil {
		return nil, errors.Join(err, hub.Close())
	}
	s.addr, s.device = addr.String(), d.ID
	s.account = func() error { return errors.New("the hub's schedule did not begin") }
	return s, nil
}

// connect returns the device's connection string, and the hub's address with the certificate to
// trust.
func (s *faultyHub) connect() (string, netopt.Options) {
	return s.hub.ConnectionString(s.device), netopt.Options{Addr: s.addr, TLS: s.hub.ClientTLS()}
}

// shortenTimes sets short time-outs for the device, so that the schedule fits into twenty seconds.
func (s *faultyHub) shortenTimes(o *device.Options) {
	o.AckTimeout, o.DialTimeout, o.StableTime = 1200*time.Millisecond, 1200*time.Millisecond, 300*time.Millisecond
	o.ReconnectSpread = -1 // this device is alone
}

// start prints the schedule and runs it in the background until finish.
func (s *faultyHub) start(withSabotage bool) {
	for _, a := range schedule {
		if a.fault.Kind.Protocols()&s.protocol != 0 && (a.only == 0 || a.only&s.protocol != 0) {
			s.steps = append(s.steps, a)
		}
	}
	if withSabotage {
		s.steps = append(s.steps, sabotage)
	}
	begin := time.Now()
	until := func(at time.Duration) bool { // false: the schedule ended first
		timer := time.NewTimer(time.Until(begin.Add(at)))
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-s.ctx.Done():
			return false
		}
	}
	fmt.Println("\nschedule of the hub, seconds from now")
	for _, a := range s.steps {
		fmt.Printf("%6.1fs  %s\n", a.at.Seconds(), a.what)
	}
	fmt.Println()
	s.played = make([]*testbroker.Injected, len(s.steps))
	for i, a := range s.steps {
		s.playing.Go(func() { // runs one step; ends with it or with finish
			if !until(a.at) {
				return
			}
			s.out.line("       hub now %s", a.what)
			in := s.hub.Inject(a.fault)
			s.mu.Lock()
			s.played[i] = in
			s.mu.Unlock()
			if a.cut {
				s.hub.Drop(s.device)
			}
		})
	}
}

// finish ends the schedule, possibly early, and prepares its report: every fault whose time came
// must have happened.
func (s *faultyHub) finish() {
	s.stop()
	s.playing.Wait()
	s.account = func() error {
		var missing []string
		fmt.Println("\nfaults")
		for i, a := range s.steps {
			if s.played[i] == nil {
				fmt.Printf("  not begun  %s\n", a.what)
				continue
			}
			fired := s.played[i].Fired()
			fmt.Printf("  %3d times  %s\n", fired, a.what)
			if fired == 0 {
				missing = append(missing, a.what)
			}
		}
		if len(missing) > 0 {
			return errors.New("scheduled faults that did not happen: " + strings.Join(missing, "; "))
		}
		return nil
	}
}

// log returns the hub's stored messages.
func (s *faultyHub) log() []entry {
	all := s.hub.Messages()
	log := make([]entry, len(all))
	for i, m := range all {
		log[i] = entry{m.MessageID, m.Body}
	}
	return log
}

func (s *faultyHub) close() {
	if err := s.hub.Close(); err != nil {
		s.out.line("hub: %v", err)
	}
}
