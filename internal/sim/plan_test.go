package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
)

// plan is everything random about one run, drawn before it begins.
type plan struct {
	seed       uint64
	engine     engine // not drawn: each plan is played with all
	tls        bool
	window     int
	maxOutbox  int
	ackTimeout time.Duration
	stable     time.Duration
	policy     string
	// reopenAfter is how often the application looks whether the client gave up, and opens it again.
	reopenAfter time.Duration
	steps       []step
	tail        time.Duration // from the last step to the end of all faults
}

// step is one thing that happens at an instant of its own.
type step struct {
	at   time.Duration
	what action
	// messages
	count   int
	expires time.Duration // 0: never
	size    int
	timeout time.Duration // of Send
	// faults
	fault testbroker.Fault
}

type action uint8

const (
	enqueue action = iota
	send           // count concurrent calls of Send
	inject
	drop
	reconnect
	newPolicy
	command // count commands from the cloud

	actions
)

func (a action) String() string {
	return [actions]string{"enqueue", "send", "inject", "drop", "reconnect", "new policy", "command"}[a]
}

func (s step) String() string {
	text := fmt.Sprintf("%14v %v", s.at, s.what)
	switch s.what {
	case enqueue:
		text += fmt.Sprintf(" %d of %d B, expiry %v", s.count, s.size, s.expires)
	case send:
		text += fmt.Sprintf(" %d of %d B, time-out %v", s.count, s.size, s.timeout)
	case command:
		text += fmt.Sprintf(" %d", s.count)
	case inject:
		text += fmt.Sprintf(" %+v", s.fault)
	}
	return text
}

func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: tls %v, window %d, outbox %d, ack time-out %v, stable %v, policy %s\n", p.seed, p.tls, p.window, p.maxOutbox, p.ackTimeout, p.stable, p.policy)
	for _, s := range p.steps {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}

func drawPlan(seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 1))
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(r.Int64N(int64(to-from))) }
	p := &plan{
		seed: seed, tls: seed%10 == 9,
		window: 1 + r.IntN(100), maxOutbox: 10 + r.IntN(300),
		ackTimeout: between(3*time.Second, 40*time.Second), stable: between(time.Second, time.Minute),
		policy: []string{"documented", "constant"}[r.IntN(2)],
	}
	length := between(30*time.Second, 15*time.Minute)
	add := func(s step) {
		s.at = between(0, length)
		p.steps = append(p.steps, s)
	}
	for range 5 + r.IntN(15) {
		s := step{what: enqueue, count: 1 + r.IntN(30), size: 20 + r.IntN(3000)}
		if r.IntN(4) == 0 {
			s.expires = between(time.Millisecond, time.Minute)
		}
		add(s)
	}
	for range r.IntN(5) {
		add(step{what: send, count: 1 + r.IntN(4), size: 20 + r.IntN(200), timeout: between(time.Second, 2*time.Minute)})
	}
	for range 2 + r.IntN(12) {
		add(step{what: inject, fault: drawFault(r, between)})
	}
	for range r.IntN(4) {
		add(step{what: drop})
	}
	for range r.IntN(3) {
		add(step{what: reconnect})
	}
	if r.IntN(3) == 0 {
		add(step{what: newPolicy})
	}
	for range r.IntN(8) {
		add(step{what: command, count: 1 + r.IntN(12)})
	}
	p.tail = between(time.Second, time.Minute)
	p.reopenAfter = between(time.Second, 30*time.Second)
	slices.SortFunc(p.steps, func(a, b step) int { return int(a.at - b.at) })
	return p
}

func drawFault(r *rand.Rand, between func(from, to time.Duration) time.Duration) testbroker.Fault {
	kinds := []testbroker.FaultKind{
		testbroker.RefuseConnect, testbroker.SlowConnack, testbroker.NoConnack, testbroker.DropConnect,
		testbroker.DropDuringPublish, testbroker.DropBeforePublish, testbroker.DropAfterPublish, testbroker.DropAfterPuback,
		testbroker.DelayPuback, testbroker.SwallowPuback, testbroker.HalfOpen, testbroker.Throttle, testbroker.Absent,
	}
	f := testbroker.Fault{Kind: kinds[r.IntN(len(kinds))], After: r.IntN(20), Times: 1 + r.IntN(5)}
	if r.IntN(4) == 0 {
		f.Probability = 0.1 + 0.8*r.Float64()
	}
	switch f.Kind {
	case testbroker.RefuseConnect:
		f.Code = []byte{1, 2, 3, 3, 3, 4, 5, 6, 200}[r.IntN(9)]
		f.After = 0
	case testbroker.SlowConnack, testbroker.NoConnack, testbroker.DropConnect:
		f.After = r.IntN(2)
	case testbroker.HalfOpen, testbroker.Throttle, testbroker.Absent:
		f = testbroker.Fault{Kind: f.Kind, For: between(time.Second, 90*time.Second)}
		if f.Kind == testbroker.Throttle {
			f.Rate, f.Limit = 1+30*r.Float64(), 5+r.IntN(60)
		}
	}
	f.Delay = between(time.Millisecond, 20*time.Second)
	return f
}
