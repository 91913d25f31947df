package sntp

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func TestTheClockIsSetToTheMiddleOfTheRoundTrip(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var seen []Attempt
		n := servers{"a": {now: truth, there: 200 * time.Millisecond, back: 400 * time.Millisecond}}
		c := newClock(t, n, Options{OnAttempt: func(a Attempt) { seen = append(seen, a) }})
		require.False(t, c.IsSet())
		require.Equal(t, 2000, c.Now().UTC().Year())
		require.NoError(t, c.Sync(t.Context()))
		require.True(t, c.IsSet())
		require.WithinDuration(t, truth().Add(-100*time.Millisecond), c.Now(), time.Microsecond)
		time.Sleep(time.Hour)
		require.WithinDuration(t, truth().Add(-100*time.Millisecond), c.Now(), time.Microsecond)

		require.Len(t, seen, 1)
		require.Equal(t, "a", seen[0].Server)
		require.NoError(t, seen[0].Err)
		require.True(t, seen[0].Set)
		require.Equal(t, 600*time.Millisecond, seen[0].RoundTrip)
		require.WithinDuration(t, c.Now().Add(-time.Hour), seen[0].Time, time.Microsecond)
		require.InDelta(t, time.Until(truth()).Seconds(), seen[0].Step.Seconds(), 1)
	})
}

// asleep returns now as time.Now does after the system was suspended for d: the wall clock went on,
// and the monotonic one stood still.
func asleep(now time.Time, d time.Duration) time.Time {
	const secondsBit = 30 // of the wall clock in a Time with a monotonic reading
	*(*uint64)(unsafe.Pointer(&now)) += uint64(d/time.Second) << secondsBit
	return now
}

// The time asleep counts if the system's date is known to be right. A date that is set meanwhile
// moves in the same way. A bubble has no monotonic clock, so this is real time.
func TestADateThatIsRightTellsTheTimeAsleep(t *testing.T) {
	for name, c := range map[string]struct{ off, want time.Duration }{
		"right": {time.Second, 8 * time.Hour},
		"wrong": {-time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			slept := time.Duration(0)
			system := func() time.Time { return asleep(time.Now(), slept) }
			clock := newClock(t, nil, Options{Now: system})
			clock.set(time.Now().Add(c.off).Round(0), system())
			before := clock.Now()
			slept = 8 * time.Hour
			require.WithinDuration(t, before.Add(c.want), clock.Now(), time.Minute)
			slept = -8 * time.Hour
			require.WithinDuration(t, before, clock.Now(), time.Minute)
		})
	}
}

func TestAnAnswerThatIsNotAcceptedLeavesTheClock(t *testing.T) {
	for name, c := range map[string]struct {
		server *timeServer
		kind   transport.Kind
	}{
		"no server":          {nil, transport.Network},
		"silence":            {&timeServer{silent: true}, transport.Timeout},
		"a slow way":         {&timeServer{there: time.Second, back: 1100 * time.Millisecond}, transport.Timeout},
		"not synchronised":   {&timeServer{change: func(p []byte) { p[0] |= 0xc0 }}, transport.Unavailable},
		"wrong request":      {&timeServer{change: func(p []byte) { p[24] ^= 1 }}, transport.Timeout},
		"RATE":               {&timeServer{change: func(p []byte) { p[1] = 0; copy(p[12:], "RATE") }}, transport.Throttled},
		"DENY":               {&timeServer{change: func(p []byte) { p[1] = 0; copy(p[12:], "DENY") }}, transport.Forbidden},
		"no time":            {&timeServer{change: func(p []byte) { clear(p[40:]) }}, transport.Protocol},
		"a flood":            {&timeServer{before: make([][]byte, maxStray)}, transport.Protocol},
		"held for too long":  {&timeServer{change: func(p []byte) { p[35] -= 2 }}, transport.Timeout},
		"an empty datagram":  {&timeServer{silent: true, before: [][]byte{{}}}, transport.Timeout},
		"a one-byte message": {&timeServer{silent: true, before: [][]byte{{0x24}}}, transport.Timeout},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			n := servers{}
			if c.server != nil {
				c.server.now = truth
				n["a"] = c.server
			}
			var seen Attempt
			clock := newClock(t, n, Options{Policy: retrypolicy.NoRetry{}, OnAttempt: func(a Attempt) { seen = a }})
			err := clock.Sync(t.Context())
			require.Equal(t, c.kind, transport.KindOf(err), "%v", err)
			require.Equal(t, c.kind, transport.KindOf(seen.Err), "%v", seen.Err)
			require.False(t, clock.IsSet())
			require.False(t, seen.Set)
			require.Equal(t, 2000, clock.Now().UTC().Year())
		})
	}
}

func TestStrayDatagramsAreIgnored(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		forged := good(truth().AddDate(5, 0, 0)) // for another request
		n := servers{"a": {now: truth, before: [][]byte{forged, {}, {1}, make([]byte, 2000)}}}
		c := newClock(t, n, Options{})
		require.NoError(t, c.Sync(t.Context()))
		require.WithinDuration(t, truth(), c.Now(), time.Millisecond)
	})
}

func TestTheNextServerIsAskedAndNoneTooOften(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := servers{"a": {now: truth, silent: true}, "b": {now: truth, silent: true}, "c": {now: truth, silent: true}}
		c := newClock(t, n, Options{Servers: []string{"a", "b", "c"}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		begin := time.Now()
		require.ErrorIs(t, c.Sync(ctx), context.DeadlineExceeded)
		for name, s := range n {
			asked := s.asked()
			require.Greater(t, len(asked), 3, name)
			for i := range asked[1:] {
				require.GreaterOrEqual(t, asked[i+1].Sub(asked[i]), floor, name)
			}
		}
		require.Less(t, n["c"].asked()[0].Sub(begin), 15*time.Second, "another server is asked soon")

		n["b"].silent = false
		require.NoError(t, c.Sync(t.Context()))
	})
}

func TestAServerThatCannotBeDialedLeavesTheOthersTheirTurn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := newClock(t, servers{"good": {now: truth}}, Options{Servers: []string{"dead", "good"}})
		require.NoError(t, c.Sync(t.Context()))
		time.Sleep(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		require.NoError(t, c.Sync(ctx))
	})
}

func TestOneServerIsNotAskedTooOften(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := servers{"a": {now: truth, change: func(p []byte) { p[0] |= 0xc0 }}}
		c := newClock(t, n, Options{Policy: retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.Immediately{}}})
		begin := time.Now()
		require.ErrorIs(t, c.Sync(t.Context()), transport.Unavailable)
		require.Equal(t, 45*time.Second, time.Since(begin))
		require.Len(t, n["a"].asked(), 4)
		require.ErrorIs(t, c.Sync(t.Context()), transport.Unavailable)
		asked := n["a"].asked()
		require.Equal(t, floor, asked[4].Sub(asked[3]), "another Sync waits too")
	})
}

func TestAServerGetsFewerRequestsWhenItAsks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := servers{"a": {now: truth, change: func(p []byte) { p[1] = 0; copy(p[12:], "RATE") }}}
		c := newClock(t, n, Options{Policy: retrypolicy.MaxAttempts{Total: 16, Policy: retrypolicy.Immediately{}}})
		require.ErrorIs(t, c.Sync(t.Context()), transport.Throttled)
		asked := n["a"].asked()
		want := 30 * time.Second
		for i := range asked[1:] {
			require.Equal(t, want, asked[i+1].Sub(asked[i]))
			want = min(2*want, maxSpacing)
		}
		require.Equal(t, maxSpacing, want)
	})
}

func TestAServerThatDeniesIsNotAskedForADay(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		deny := func(p []byte) { p[1] = 0; copy(p[12:], "DENY") }
		n := servers{"a": {now: truth, change: deny}, "b": {now: truth, silent: true}}
		c := newClock(t, n, Options{Servers: []string{"a", "b"},
			Policy: retrypolicy.MaxAttempts{Total: 6, Policy: retrypolicy.Immediately{}}})
		require.ErrorIs(t, c.Sync(t.Context()), transport.Timeout)
		require.Len(t, n["a"].asked(), 1)
		require.Len(t, n["b"].asked(), 5)
		n["b"].silent, n["b"].change = false, deny
		err := c.Sync(t.Context())
		require.ErrorIs(t, err, transport.Forbidden)
		require.ErrorContains(t, err, "every server denies its service")
		require.ErrorIs(t, c.Sync(t.Context()), transport.Forbidden)
		require.Len(t, n["b"].asked(), 6)
		time.Sleep(maxSpacing - time.Minute)
		require.ErrorIs(t, c.Sync(t.Context()), transport.Forbidden)
		require.Len(t, n["b"].asked(), 6)
		time.Sleep(time.Minute)
		n["b"].change = nil
		begin := time.Now()
		for range 4 {
			require.NoError(t, c.Sync(t.Context()), "another day, perhaps another server")
		}
		require.Less(t, time.Since(begin), time.Minute, "it is asked as often as others")
		require.Len(t, n["a"].asked(), 2, "its day was over a minute before, and it denied again")
		require.Len(t, n["b"].asked(), 10)
	})
}

func TestAServerThatLiesIsOutvoted(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		wrong := func() time.Time { return truth().AddDate(1, 0, 0) }
		near := func() time.Time { return truth().Add(4 * time.Second) }
		n := servers{"a": {now: wrong}, "b": {now: truth}, "c": {now: near}}
		var seen []Attempt
		c := newClock(t, n, Options{Servers: []string{"a", "b", "c"}, Quorum: 2,
			OnAttempt: func(a Attempt) { seen = append(seen, a) }})
		require.NoError(t, c.Sync(t.Context()))
		require.Len(t, seen, 3)
		require.ErrorIs(t, seen[0].Err, errQuorum)
		require.ErrorIs(t, seen[1].Err, errQuorum)
		require.False(t, seen[0].Set)
		require.True(t, seen[2].Set)
		require.WithinDuration(t, near(), c.Now(), time.Millisecond)

		n["c"].now = func() time.Time { return truth().Add(6 * time.Second) } // further than Tolerance
		c = newClock(t, n, Options{Servers: []string{"a", "b", "c"}, Quorum: 2,
			Policy: retrypolicy.MaxAttempts{Total: 9, Policy: retrypolicy.Immediately{}}})
		require.ErrorIs(t, c.Sync(t.Context()), transport.Unavailable)
		require.False(t, c.IsSet(), "a server that is asked twice has one vote")
	})
}

// A clock that is right already has an offset near 0, like a server that has not answered.
func TestAServerThatHasNotAnsweredHasNoVote(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := servers{"a": {now: truth}, "b": {now: truth, silent: true}}
		c := newClock(t, n, Options{Servers: []string{"a", "b"}, Quorum: 2, Now: truth,
			Policy: retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.Immediately{}}})
		require.ErrorIs(t, c.Sync(t.Context()), transport.Timeout)
		require.False(t, c.IsSet())
	})
}

func TestTheContextEndsEveryWait(t *testing.T) {
	for name, c := range map[string]struct {
		n     servers
		after time.Duration
	}{
		"of the answer":      {servers{"a": {now: truth, silent: true}}, 2 * time.Second},
		"between two":        {servers{}, 30 * time.Second},
		"before the request": {servers{"a": {now: truth, silent: true}}, 10 * time.Second},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			clock := newClock(t, c.n, Options{})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(c.after, cancel)
			begin := time.Now()
			require.ErrorIs(t, clock.Sync(ctx), context.Canceled)
			require.LessOrEqual(t, time.Since(begin), c.after+glance)
			require.ErrorIs(t, clock.Sync(ctx), context.Canceled, "a context that has ended")
		})
	}
}

func TestRunKeepsTheClockRight(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		slow := func() time.Time {
			return time.Now().Add(-time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) / 1000)
		}
		n := servers{"a": {now: truth}}
		c := newClock(t, n, Options{Now: slow})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Second)
		require.ErrorIs(t, c.Sync(t.Context()), transport.Invalid, "one at a time")
		for range 100 {
			time.Sleep(time.Hour)
			require.WithinDuration(t, truth(), c.Now(), 22*time.Second) // a thousandth of 6 h
		}
		n["a"].mu.Lock()
		n["a"].silent = true
		n["a"].mu.Unlock()
		time.Sleep(24 * time.Hour)
		require.True(t, c.IsSet())
		require.WithinDuration(t, truth(), c.Now(), 110*time.Second, "it keeps the time that it has")
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, c.timerStopped())
	})
}

func TestErrorsOfAConnectionShowNoSecrets(t *testing.T) {
	leak := errors.New("modem: sig=abc1")
	c := newClock(t, nil, Options{})
	c.dial = func(context.Context, string) (Conn, error) { return nil, leak }
	_, _, _, err := c.ask(t.Context(), &server{name: "a"})
	require.ErrorIs(t, err, leak)
	require.ErrorIs(t, err, transport.Network)
	require.NotContains(t, err.Error(), "abc1")
}

func (c *Clock) timerStopped() error {
	if c.timer.Stop() {
		return errors.New("the timer is left")
	}
	return nil
}

// A client waits while the clock is unset, and connects soon after.
func TestAClientConnectsOnceTheClockIsSet(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hub, err := testbroker.New(&testbroker.Options{Now: truth})
		require.NoError(t, err)
		defer hub.Close()
		dev, err := hub.AddDevice("board")
		require.NoError(t, err)
		creds, err := device.ParseConnectionString(dev.ConnectionString())
		require.NoError(t, err)
		n := servers{"a": {now: truth, silent: true}}
		unset := func() time.Time { return time.Now().AddDate(-30, 0, 0) } // 1970
		clock := newClock(t, n, Options{Now: unset})
		creds.Now = clock.Now
		network := netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortMQTT)}
		client, err := device.New(creds, mqtt.New(&mqtt.Options{Network: network}), nil)
		require.NoError(t, err)
		defer client.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- clock.Run(ctx) }()
		require.NoError(t, client.Start())
		time.Sleep(10 * time.Minute)
		status := client.Status()
		require.Equal(t, device.StateDisconnectedRetrying, status.State)
		require.ErrorIs(t, status.Err, transport.ClockUnset)
		n["a"].mu.Lock()
		n["a"].silent = false
		n["a"].mu.Unlock()
		for !clock.IsSet() {
			time.Sleep(time.Second)
		}
		begin := time.Now()
		require.NoError(t, client.Send(t.Context(), &transport.Message{Body: []byte("21.5")}))
		require.Less(t, time.Since(begin), time.Minute)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

func TestWrongOptionsAreNamed(t *testing.T) {
	dial := servers{}.dial
	right := Options{Servers: []string{"a"}, Rand: rand.Uint64}
	for text, change := range map[string]func(o *Options){
		"Options.Servers is empty":       func(o *Options) { o.Servers = nil },
		"Options.Rand is nil":            func(o *Options) { o.Rand = nil },
		"Options.Quorum is out of range": func(o *Options) { o.Quorum = 2 },
		"Options.Timeout":                func(o *Options) { o.Timeout = -1 },
		"Options.Interval is below 15 s": func(o *Options) { o.Interval = time.Second },
		"MaxAttempts":                    func(o *Options) { o.Policy = retrypolicy.MaxAttempts{} },
	} {
		o := right
		change(&o)
		_, err := New(dial, &o)
		require.ErrorIs(t, err, transport.Invalid, text)
		require.ErrorContains(t, err, text)
	}
	_, err := New(nil, &right)
	require.ErrorContains(t, err, "dial is nil")
	_, err = New(dial, nil)
	require.ErrorIs(t, err, transport.Invalid)
	_, err = New(dial, &right)
	require.NoError(t, err)
}

func TestACallbackThatPanicsIsAFailure(t *testing.T) {
	o := Options{Servers: []string{"a"}, Rand: rand.Uint64, Policy: retrypolicy.NoRetry{}}
	c, err := New(func(context.Context, string) (Conn, error) { panic("no modem") }, &o)
	require.NoError(t, err)
	require.ErrorContains(t, c.Sync(t.Context()), "no modem")
	for text, dial := range map[string]Dial{
		"an error whose Error method": func(context.Context, string) (Conn, error) { return nil, (*os.PathError)(nil) },
		"returned no connection":      func(context.Context, string) (Conn, error) { return nil, nil },
		"panicked: runtime error":     func(context.Context, string) (Conn, error) { return useless{}, nil },
	} {
		c, err := New(dial, &o)
		require.NoError(t, err)
		require.ErrorContains(t, c.Sync(t.Context()), text)
	}
}

// useless is a connection whose methods panic, as those of a nil pointer do.
type useless struct{ Conn }

// fixed is a connection whose answer is ready.
type fixed struct {
	at  time.Time
	out [packetSize]byte
}

func (f *fixed) Write(p []byte) (int, error)     { return copy(f.out[:], p), nil }
func (f *fixed) Close() error                    { return nil }
func (f *fixed) SetReadDeadline(time.Time) error { return nil }
func (f *fixed) Read(p []byte) (int, error) {
	copy(p[atOriginate:], f.out[atTransmit:])
	p[0], p[1] = 4<<3|4, 1
	binary.BigEndian.PutUint64(p[atReceive:], stamp(f.at))
	binary.BigEndian.PutUint64(p[atTransmit:], stamp(f.at))
	return packetSize, nil
}

func TestAnExchangeAllocatesNothing(t *testing.T) {
	c := newClock(t, servers{}, Options{})
	f := &fixed{at: time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)}
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, _, _, err := c.exchange(ctx, f); err != nil {
			panic(err)
		}
	}))
}

func TestARealSocket(t *testing.T) {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	ended := make(chan error)
	right := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &timeServer{now: func() time.Time { return right }}
	go func() { // ends when the socket is closed
		b := make([]byte, 1500)
		for {
			n, from, err := socket.ReadFromUDP(b)
			if err != nil {
				ended <- err
				return
			}
			_, _ = socket.WriteToUDP(s.answer(b[:n]), from)
		}
	}()
	var d net.Dialer
	dial := func(ctx context.Context, server string) (Conn, error) { return d.DialContext(ctx, "udp", server) }
	o := Options{Servers: []string{socket.LocalAddr().String()}, Rand: rand.Uint64}
	c, err := New(dial, &o)
	require.NoError(t, err)
	require.NoError(t, c.Sync(t.Context()))
	require.Equal(t, 2031, c.Now().UTC().Year())
	require.NoError(t, socket.Close())
	require.ErrorIs(t, <-ended, net.ErrClosed)
}
