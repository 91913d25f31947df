package nexthub

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/transport"
)

// bench is a machine under test, and its clock.
type bench struct {
	*testing.T
	methods
	now time.Time
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, now: time.Unix(1_800_000_000, 0)}
	b.newID = counter()
	return b
}

// counter returns a source of ids: 1, 2 and so on.
func counter() func() (nextwire.ID, error) {
	n := byte(0)
	return func() (nextwire.ID, error) {
		n++
		return nextwire.ID{15: n}, nil
	}
}

// in is the expiry of a message that has so many seconds left; never is that of a message without
// one.
func (b *bench) in(seconds int64) time.Time { return b.now.Add(time.Duration(seconds) * time.Second) }

var never time.Time

func id(n byte) nextwire.ID { return nextwire.ID{n} }

// probed plays a probe for method "m" and returns the answer's arm.
func (b *bench) probed(request byte, timeout uint32, expires time.Time) (*nextwire.ProbeAck, outcome) {
	p := &nextwire.Probe{Method: "m", ResponseTimeout: timeout}
	if b.knows(id(request)) {
		return nil, outcome{}
	}
	o := b.probe(b.now, id(request), p, expires, b.judge(p))
	if o.send == nil {
		return nil, o
	}
	require.Equal(b, nextwire.TypeProbeAck, typeOf(o.send))
	require.Equal(b, string(pointer(id(request))[:]), o.send.CorrelationID)
	require.Equal(b, nextwire.ContentType, o.send.ContentType)
	return read(b, o.send, &nextwire.ProbeAck{}), o
}

// ready plays a probe that is accepted, and returns the token.
func (b *bench) ready(request byte, timeout uint32, expires time.Time) []byte {
	ack, _ := b.probed(request, timeout, expires)
	require.NotNil(b, ack)
	require.NotNil(b, ack.Ready)
	return ack.Ready.ID
}

func (b *bench) execute(request byte, token []byte, expires time.Time) outcome {
	return b.exec(b.now, id(request), &nextwire.Exec{ReadyID: token}, expires)
}

// abandoned requires that o sends an Abandon.
func (b *bench) abandoned(o outcome, reason nextwire.AbandonReason, token []byte, left time.Duration) {
	require.NotNil(b, o.send)
	require.False(b, o.run)
	require.Equal(b, nextwire.TypeAbandon, typeOf(o.send))
	require.Equal(b, &nextwire.Abandon{ReadyID: token, Reason: reason}, read(b, o.send, &nextwire.Abandon{}))
	require.Equal(b, left, o.send.Expires.Sub(b.now))
	require.Equal(b, "m", o.method)
}

func read[M nextwire.Message](t require.TestingT, m *transport.Message, into M) M {
	require.NoError(t, nextwire.Decode(m.Body, into))
	return into
}

func pointer[T any](v T) *T { return &v }

func TestAMethodRunsOnceForItsToken(t *testing.T) {
	b := newBench(t)
	token := b.ready(1, 30, b.in(20))
	o := b.execute(1, token, b.in(30))
	require.True(t, o.run)
	require.Equal(t, "m", o.method)
	require.Equal(t, transport.Conflict, b.execute(1, token, b.in(30)).event) // QoS 1 repeats it
	ack, _ := b.probed(1, 30, b.in(20))
	require.Nil(t, ack) // of a method that runs
	m, err := b.result(b.now.Add(10*time.Second), id(1), -1, []byte("x"))
	require.NoError(t, err)
	require.Equal(t, nextwire.TypeResult, typeOf(m))
	require.Equal(t, &nextwire.Result{Status: -1, Body: []byte("x")}, read(t, m, &nextwire.Result{}))
	require.Equal(t, b.in(30), m.Expires) // the rest of the exec's
	_, err = b.result(b.now, id(1), 200, nil)
	require.ErrorIs(t, err, errTooLate) // a second answer
	require.Equal(t, outcome{event: transport.Conflict}, b.execute(1, token, b.in(30)))
	require.Empty(t, b.calls)
}

func TestARepeatedProbeKeepsTheFirstToken(t *testing.T) {
	b := newBench(t)
	token := b.ready(1, 30, b.in(20))
	ack, o := b.probed(1, 30, b.in(20))
	require.Nil(t, ack)
	require.Equal(t, outcome{}, o)
	require.True(t, b.execute(1, token, b.in(30)).run)
}

func TestAnExecWithoutItsTokenIsIgnored(t *testing.T) {
	b := newBench(t)
	require.Equal(t, outcome{event: transport.Conflict}, b.execute(1, make([]byte, 16), b.in(30))) // no probe
	token := b.ready(1, 30, b.in(20))
	other := b.ready(2, 30, b.in(20))
	for _, wrong := range [][]byte{nil, token[:15], other, append([]byte{0}, token...)} {
		require.Equal(t, outcome{event: transport.Conflict}, b.execute(1, wrong, b.in(30)))
	}
	require.Equal(t, outcome{event: transport.Conflict}, b.execute(2, token, b.in(30))) // of another request
	require.True(t, b.execute(1, token, b.in(30)).run)                                  // it stayed
}

func TestMargins(t *testing.T) {
	for timeout, want := range map[int]int{0: 1, 1: 1, 9: 1, 10: 1, 19: 1, 20: 2, 29: 2, 99: 9, 100: 10, 300: 10} {
		require.Equal(t, time.Duration(want)*time.Second, margin(time.Duration(timeout)*time.Second), timeout)
	}
}

func TestProbesAreRefusedWithTheirReason(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		probe  nextwire.Probe
		reason nextwire.RejectReason
	}{
		{nextwire.Probe{Method: ""}, nextwire.RejectMethodNotFound},
		{nextwire.Probe{Method: strings.Repeat("x", 96)}, nextwire.RejectMethodNotFound},
		{nextwire.Probe{Method: strings.Repeat("x", 95)}, 0},
		{nextwire.Probe{Method: "a\x00b"}, nextwire.RejectMethodNotFound},
		{nextwire.Probe{Method: "m", ResponseTimeout: 1}, nextwire.RejectInsufficientTime},
		{nextwire.Probe{Method: "m", ResponseTimeout: 2}, 0},
		{nextwire.Probe{Method: "m"}, 0},
		{nextwire.Probe{Method: "m", ResponseTimeout: 1<<32 - 1}, 0},
	} {
		require.Equal(t, c.reason, b.judge(&c.probe), c.probe)
	}
	o := b.probe(b.now, id(1), &nextwire.Probe{Method: "m"}, b.in(7), nextwire.RejectMethodNotFound)
	require.Equal(t, nextwire.RejectMethodNotFound, read(t, o.send, &nextwire.ProbeAck{}).Rejected.Reason)
	require.Equal(t, b.in(7), o.send.Expires) // the rest of the probe's
	require.Empty(t, b.calls)
	_, o = b.probed(1, 1, b.in(7))
	require.Equal(t, transport.Expired, o.event)
}

func TestAFullDeviceIsBusyUntilACallEnds(t *testing.T) {
	b := newBench(t)
	var tokens [][]byte
	for i := byte(0); i < maxCalls; i++ {
		tokens = append(tokens, b.ready(i, 30, b.in(20)))
	}
	ack, _ := b.probed(100, 30, b.in(20))
	require.Equal(t, nextwire.RejectDeviceBusy, ack.Rejected.Reason)
	require.True(t, b.execute(0, tokens[0], b.in(30)).run) // running counts as well
	ack, _ = b.probed(100, 30, b.in(20))
	require.Equal(t, nextwire.RejectDeviceBusy, ack.Rejected.Reason)
	_, err := b.result(b.now, id(0), 200, nil)
	require.NoError(t, err)
	b.ready(100, 30, b.in(20))
	b.drop(id(1)) // its Ready could not be sent
	b.ready(101, 30, b.in(20))
}

func TestAProbeWithoutTimeIsNotAnswered(t *testing.T) {
	b := newBench(t)
	for _, expires := range []time.Time{b.in(0), b.in(-5), b.now.Add(400 * time.Millisecond)} {
		ack, o := b.probed(1, 30, expires)
		require.Nil(t, ack)
		require.Equal(t, outcome{method: "m", event: transport.Expired}, o)
		require.Empty(t, b.calls) // its place is free
	}
	b.ready(1, 30, b.in(1))
	b.ready(2, 30, never)
	b.ready(3, 1<<32-1, b.in(1<<32-1)) // nothing wraps around
	require.True(t, b.calls[2].until.After(b.in(1<<32-1)))
}

func TestAnExecNeedsMoreTimeThanTheMargin(t *testing.T) {
	for name, c := range map[string]struct {
		timeout uint32
		left    int64
		run     bool
	}{
		"no time":              {30, 0, false},
		"no time of long ago":  {30, -1, false},
		"a second":             {30, 1, false},
		"the margin":           {30, 3, false},
		"more than the margin": {30, 4, true},
		"without a time-out":   {0, 2, true},
		"the longest":          {1<<32 - 1, 1<<32 - 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			token := b.ready(1, c.timeout, b.in(20))
			o := b.execute(1, token, b.in(c.left))
			require.Equal(t, c.run, o.run)
			if !c.run {
				b.abandoned(o, nextwire.AbandonInsufficientTime, token, time.Duration(c.timeout)*time.Second)
				require.Equal(t, transport.Expired, o.event)
				require.Equal(t, transport.Conflict, b.execute(1, token, b.in(30)).event) // the token is gone
			}
		})
	}
}

func TestAnExecWithoutExpiryHasNoLimit(t *testing.T) {
	b := newBench(t)
	require.True(t, b.execute(1, b.ready(1, 30, b.in(20)), never).run)
	b.now = b.now.Add(1000 * time.Hour)
	o, at := b.next(b.now)
	require.Equal(t, outcome{}, o)
	require.True(t, at.IsZero())
	m, err := b.result(b.now, id(1), 200, nil)
	require.NoError(t, err)
	require.True(t, m.Expires.IsZero())
}

func TestATokenThatEndsIsGivenUp(t *testing.T) {
	b := newBench(t)
	early := b.ready(1, 30, b.in(20)) // 20 s for the answer, 30 s to run, 3 s margin
	b.ready(2, 100, b.in(20))
	o, at := b.next(b.now)
	require.Nil(t, o.send)
	require.Equal(t, b.in(53), at)
	b.now = at
	require.Equal(t, outcome{event: transport.Conflict}, b.execute(1, early, b.in(30))) // at its end, too
	o, _ = b.next(b.now)
	b.abandoned(o, nextwire.AbandonReadyWaitTimeout, early, 30*time.Second)
	require.Equal(t, transport.Expired, o.event)
	require.False(t, b.knows(id(1)))
	o, at = b.next(b.now)
	require.Equal(t, outcome{}, o)
	require.Equal(t, b.in(77), at)
}

func TestATokenIsOfferedAgainOnAnotherConnection(t *testing.T) {
	b := newBench(t)
	token := b.ready(1, 30, b.in(20))
	require.True(t, b.execute(2, b.ready(2, 30, b.in(20)), b.in(30)).run)
	b.connection++
	o, _ := b.next(b.now.Add(10 * time.Second))
	require.Equal(t, &nextwire.ProbeAck{Ready: &nextwire.Ready{ID: token}}, read(t, o.send, &nextwire.ProbeAck{}))
	require.Equal(t, b.in(20), o.send.Expires)
	o, _ = b.next(b.now)
	require.Nil(t, o.send) // once
	b.connection++
	o, at := b.next(b.now.Add(20 * time.Second)) // the service has given up
	require.Nil(t, o.send)
	require.Equal(t, b.in(30), at)
}

func TestALateResultIsDropped(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		late  bool
	}{
		"with a second left": {29 * time.Second, false},
		"with less":          {29*time.Second + 100*time.Millisecond, true},
		"at the end":         {30 * time.Second, true},
		"afterwards":         {time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			require.True(t, b.execute(1, b.ready(1, 30, b.in(20)), b.in(30)).run)
			m, err := b.result(b.now.Add(c.after), id(1), 200, nil)
			require.Equal(t, c.late, err != nil)
			require.Equal(t, c.late, m == nil)
			require.Empty(t, b.calls)
		})
	}
}

func TestAMethodWithoutAnswerLosesItsPlaceAtTheEndOfItsBudget(t *testing.T) {
	b := newBench(t)
	require.True(t, b.execute(1, b.ready(1, 30, b.in(20)), b.in(30)).run)
	b.ready(2, 300, b.in(20))
	o, at := b.next(b.in(30))
	require.Equal(t, outcome{}, o) // nothing on the wire
	require.Equal(t, b.in(330), at)
	_, err := b.result(b.in(31), id(1), 200, nil)
	require.ErrorIs(t, err, errTooLate)
}

// Messages come in any order, again, late and with foreign tokens: no request runs twice, each
// Result is for one that ran, and all places become free.
func TestNoOrderOfMessagesRunsAMethodTwice(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	for round := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, round))
		b := newBench(t)
		n := uint64(0)
		b.newID = func() (fresh nextwire.ID, _ error) {
			n++
			binary.BigEndian.PutUint64(fresh[8:], n)
			return fresh, nil
		}
		tokens, ran, answered := map[byte][]byte{}, map[byte]int{}, map[byte]int{}
		for range 400 {
			request := byte(random.IntN(30))
			expires := never
			if random.IntN(5) > 0 {
				expires = b.in(random.Int64N(40))
			}
			switch random.IntN(5) {
			case 0:
				if ack, _ := b.probed(request, uint32(random.IntN(60)), expires); ack != nil && ack.Ready != nil &&
					ran[request] == 0 { // the service ends a request with its Result, and probes it no more
					tokens[request] = ack.Ready.ID
				}
			case 1:
				if random.IntN(8) == 0 {
					request = byte(random.IntN(30))
				}
				if b.execute(request, tokens[request], expires).run {
					ran[request]++
				}
			case 2:
				if _, err := b.result(b.now, id(request), 200, nil); err == nil {
					answered[request]++
				}
			case 3:
				b.now = b.now.Add(time.Duration(random.IntN(5000)) * time.Millisecond)
			case 4:
				b.connection += random.IntN(2)
				b.next(b.now)
			}
			require.LessOrEqual(t, len(b.calls), maxCalls)
		}
		for request, times := range ran {
			require.LessOrEqual(t, times, 1, "round %d, request %d", round, request)
		}
		for request, times := range answered {
			require.LessOrEqual(t, times, ran[request], "round %d, request %d", round, request)
		}
		b.now = b.now.Add(1000 * time.Hour)
		for o, _ := b.next(b.now); o.send != nil; o, _ = b.next(b.now) {
		}
		for _, c := range b.calls {
			require.True(t, c.running && c.until.IsZero()) // without a limit
		}
	}
}
