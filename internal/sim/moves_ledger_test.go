package sim_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// askLedger records what a device has met at hubs, and whether that is a reason to ask the
// provisioning service. Guarded by world.mu.
type askLedger struct {
	refused                bool // by the hub; the device has not answered that yet
	reason                 bool // a refusal, or a row of failures
	failures, nameFailures int  // in a row
	pending                bool // the latest registration did not lead to an assignment
	asked, moved           int
	// began are the times of first attempts to register, and of attempts that a call hastened.
	began []time.Time
}

// nameRow is the number of failed look-ups in a row after which the service is asked.
const nameRow = 5

// dialed records the result of an attempt to connect to a hub. An attempt at a hub that has refused
// the device is an error.
func (l *askLedger) dialed(result error, p *movePlan) (err error) {
	switch {
	case l.refused:
		err = errors.New("a hub refused the device, which tried again without another key or another assignment")
	case l.overdue(p):
		err = fmt.Errorf("the device did not ask the service after %d failures and %d failed look-ups in a row", l.failures,
			l.nameFailures)
	}
	if errchain.IsUnasked(result) { // the service issued no certificate, or the key failed
		l.reason = true
		return err
	}
	kind := transport.KindOf(result)
	l.refused = kind == transport.Unauthorized || kind == transport.Forbidden || kind == transport.NotFound
	l.reason = l.reason || l.refused
	switch {
	case result == nil:
		l.failures, l.nameFailures, l.pending = 0, 0, false
		return err
	case l.refused, slices.Contains(saysNothing, kind):
		return err
	}
	l.failures++
	if look, ok := errors.AsType[*net.DNSError](result); ok && look.IsNotFound {
		l.nameFailures++
	} else {
		l.nameFailures = 0
	}
	l.reason = l.reason || l.overdue(p)
	return err
}

// overdue reports whether a row of failures is long enough to ask the service.
func (l *askLedger) overdue(p *movePlan) bool {
	return l.failures >= p.maxFailures || l.nameFailures >= nameRow
}

// saysNothing are the Kinds of failures that say nothing about the assignment.
var saysNothing = kinds(throttled, unavailable, quota, transport.ClockUnset, invalid)

// ended records the end of a connection with a hub. Unauthorized may be due to an expired token,
// unless the device has a certificate.
func (l *askLedger) ended(err error, certificate bool) {
	kind := transport.KindOf(err)
	if kind == transport.Forbidden || kind == transport.NotFound || kind == transport.Unauthorized && certificate {
		l.refused, l.reason = true, true
	}
}

// stepped records a step of the device. A registration without a reason is an error.
func (l *askLedger) stepped(e dpstransport.Event, p *movePlan) (err error) {
	switch e.Step {
	case dpstransport.StepRegistering:
		if l.asked > 0 && !l.pending && !l.reason {
			err = fmt.Errorf("the service is asked without a reason, after %d failures in a row: %w", l.failures, e.Err)
		}
		if !l.pending {
			l.began = append(l.began, time.Now())
		}
		l.asked++
		l.pending, l.reason, l.refused, l.failures, l.nameFailures = true, false, false, 0, 0
	case dpstransport.StepAssigned:
		l.pending, l.failures, l.nameFailures = false, 0, 0
		if e.Moved {
			l.moved++
		}
	case dpstransport.StepOtherKey:
		l.failures, l.nameFailures, l.refused = 0, 0, false
	}
	return err
}

// begunBetween reports whether a registration began after a and until b.
func (l *askLedger) begunBetween(a, b time.Time) bool {
	for _, at := range l.began {
		if !at.Before(a) && !at.After(b) {
			return true
		}
	}
	return false
}

// minPause is the shortest pause after a refused request: the first delay of the default policy.
const minPause = time.Second

// checkRequests checks the number and the pace of the requests to the service.
func (j *journey) checkRequests() error {
	p := j.plan
	var errs []error
	refused := 0
	for i, r := range j.requests {
		if r.Status < 400 {
			continue
		}
		refused++
		if i == len(j.requests)-1 || r.Status != 429 && r.Status < 500 {
			continue
		}
		next := j.requests[i+1]
		if j.asks.begunBetween(r.Received, next.Received) {
			continue
		}
		pause := minPause
		if seconds, err := strconv.Atoi(r.RetryAfter); err == nil && !p.loses() {
			pause = max(pause, min(time.Duration(seconds)*time.Second, times.MaxRetryAfter))
		}
		if took := next.Received.Sub(r.Received); took < pause && !p.loses() {
			errs = append(errs, fmt.Errorf("request %d came %v after a refusal with %d, which asks for %v", i+2, took,
				r.Status, pause))
		}
	}
	fired := 0
	for _, in := range j.inService {
		fired += in.Fired()
	}
	each := 2 + max(p.polls, 0) + int(p.assigning/(2*time.Second)) + 1
	if most := (j.asks.asked + fired + refused) * each; len(j.requests) > most {
		errs = append(errs, fmt.Errorf("%d requests to the service for %d attempts, %d faults and %d refusals; at most %d",
			len(j.requests), j.asks.asked, fired, refused, most))
	}
	polled := map[string]dpsdata.Request{}
	for i, r := range j.requests {
		if r.Operation != dpsdata.OperationPoll || r.Status == 401 { // the other key comes at once
			continue
		}
		last, again := polled[r.OperationID]
		pause := r.Received.Sub(last.Received)
		// net/http repeats a GET on a new connection, once.
		repeated := r.Protocol == hubdata.HTTP && r.Connection != last.Connection
		if again && pause < minPause && !repeated {
			errs = append(errs, fmt.Errorf("request %d polls an operation again after %v", i+1, pause))
		}
		polled[r.OperationID] = r
	}
	return errors.Join(errs...)
}

// A ledger must detect losses, also at the second hub.
func TestTheLedgerOfMovesNoticesASabotage(t *testing.T) {
	for _, e := range engines {
		if e.variant || e.batches || e.plain || e.next {
			continue
		}
		testkit.Run(t, e.name, func(t *testing.T) {
			p := drawMoves(1, e)
			p.steps = []step{
				{at: time.Minute, what: move, count: 1, size: 1},
				{at: 3 * time.Minute, what: inject, count: 1, fault: fault.Fault{Kind: fault.Forget, After: 3}},
				{at: 4 * time.Minute, what: enqueue, count: 10, size: 100},
			}
			j := travel(t, p, false)
			require.Equal(t, 1, j.asks.moved)
			require.ErrorContains(t, j.checkJourney(), "message 4 was acknowledged and the hub does not have it")
		})
	}
}

// The ledger notices a device that asks without a reason, and one that does not ask.
func TestTheLedgerOfReasonsNoticesASabotage(t *testing.T) {
	failed := func(k transport.Kind) error { return &transport.Error{Kind: k} }
	noName := &transport.Error{Kind: network, Err: &net.DNSError{IsNotFound: true}}
	for name, row := range map[string]struct {
		dials []error
		asks  bool // in the end
		want  string
	}{
		"refused, and asks":       {dials: []error{failed(forbidden)}, asks: true},
		"refused, and stays":      {dials: []error{failed(forbidden), nil}, want: "tried again"},
		"throttled, and asks":     {dials: []error{failed(throttled)}, asks: true, want: "without a reason"},
		"throttled, and stays":    {dials: []error{failed(throttled), failed(unavailable), nil}},
		"failed twice, and asks":  {dials: []error{failed(timeout), failed(network)}, asks: true, want: "without a reason"},
		"failed thrice, and asks": {dials: []error{failed(timeout), failed(network), failed(network)}, asks: true},
		"failed thrice, and stays": {dials: []error{failed(network), failed(network), failed(network), nil},
			want: "did not ask"},
		"connected between":  {dials: []error{failed(network), failed(network), nil, failed(network), nil}},
		"no name, and stays": {dials: []error{noName, noName, noName, noName}, want: "did not ask"},
	} {
		t.Run(name, func(t *testing.T) {
			l, p := &askLedger{asked: 1}, &movePlan{maxFailures: 3}
			var errs []error
			for _, err := range row.dials {
				errs = append(errs, l.dialed(err, p))
			}
			if row.asks {
				errs = append(errs, l.stepped(dpstransport.Event{Step: dpstransport.StepRegistering}, p))
			}
			if row.want == "" {
				require.NoError(t, errors.Join(errs...))
				return
			}
			require.ErrorContains(t, errors.Join(errs...), row.want)
		})
	}
}
