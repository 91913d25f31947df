package wifi_test

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board/wifi"
	"github.com/hubline-iot/hubline/sntp"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
	"github.com/stretchr/testify/require"
)

// chip plays the radio and the stack. It fails while its fields say so.
type chip struct {
	joined, leased                      bool
	restarts, joins, leases, asks       int
	badJoins, badLeases, badDials, hung int
	silent                              bool          // no time server answers
	lease                               time.Duration // what the server grants
	steps                               []string
}

var errChip = errors.New("no answer")

// fails reports whether a step fails, and counts it.
func (c *chip) fails(step string, left *int) error {
	c.steps = append(c.steps, step)
	time.Sleep(time.Second)
	if *left > 0 {
		*left--
		return errChip
	}
	return nil
}

func (c *chip) Restart() error {
	c.restarts++
	c.joined, c.leased = false, false
	return c.fails("restart", &c.hung)
}

func (c *chip) Join() error {
	c.joins++
	err := c.fails("join", &c.badJoins)
	c.joined = err == nil
	return err
}

func (c *chip) Joined() bool { return c.joined }

func (c *chip) Lease() (time.Duration, error) {
	c.leases++
	err := c.fails("lease", &c.badLeases)
	c.leased = err == nil
	return c.lease, err
}

func (c *chip) DialTCP(_ context.Context, addr string) (engine.Conn, error) {
	if err := c.fails("dial "+addr, &c.badDials); err != nil {
		return nil, err
	}
	if !c.joined || !c.leased {
		return nil, errors.New("dialled too early")
	}
	return quiet{}, nil
}

func (c *chip) DialUDP(context.Context, string) (sntp.Conn, error) {
	c.asks++
	c.steps = append(c.steps, "time")
	return &timeServer{silent: c.silent}, nil
}

// quiet is a connection on which nothing arrives.
type quiet struct{}

func (quiet) Read([]byte) (int, error)        { return 0, errChip }
func (quiet) Write(p []byte) (int, error)     { return len(p), nil }
func (quiet) Close() error                    { return nil }
func (quiet) SetReadDeadline(time.Time) error { return nil }

// timeServer answers with the time that is ahead of the board's by this much.
type timeServer struct {
	silent   bool
	request  []byte
	deadline time.Time
}

const ahead = 30 * 365 * 24 * time.Hour

func (s *timeServer) Write(p []byte) (int, error) {
	s.request = append([]byte(nil), p...)
	return len(p), nil
}

func (s *timeServer) Read(p []byte) (int, error) {
	if s.silent || s.request == nil {
		time.Sleep(time.Until(s.deadline))
		return 0, timeout{}
	}
	answer := make([]byte, 48)
	answer[0], answer[1] = 4<<3|4, 2
	copy(answer[24:32], s.request[40:48])
	seconds := uint32(time.Now().Add(ahead).Unix() + 2208988800)
	binary.BigEndian.PutUint32(answer[32:], seconds)
	binary.BigEndian.PutUint32(answer[40:], seconds)
	s.request = nil
	return copy(p, answer), nil
}

func (s *timeServer) Close() error { return nil }

func (s *timeServer) SetReadDeadline(t time.Time) error {
	s.deadline = t
	return nil
}

type timeout struct{}

func (timeout) Error() string { return "late" }
func (timeout) Timeout() bool { return true }

func newStation(t *testing.T, c *chip) *wifi.Station {
	t.Helper()
	s, err := wifi.New(config(c))
	require.NoError(t, err)
	return s
}

func config(c *chip) wifi.Config {
	random := uint64(0)
	return wifi.Config{Radio: c, Stack: c, Addr: "gateway:1883", Clock: sntp.Options{
		Servers: []string{"a:123", "b:123"}, Rand: func() uint64 { random++; return random }}}
}

// start starts a station that has what it needs.
func start(t *testing.T, s *wifi.Station) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	require.NoError(t, s.Start(ctx, func() {}, time.Hour, nil))
}

func TestStartJoinsLeasesAndSetsTheClockInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chip{lease: time.Hour}
		s := newStation(t, c)
		start(t, s)
		_, err := s.Dial(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, "restart, join, lease, time, dial gateway:1883", strings.Join(c.steps, ", "))
		require.InDelta(t, ahead.Seconds(), time.Until(s.Now()).Seconds(), 1)
	})
}

func TestStartTriesAgainAndReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chip{lease: time.Hour, hung: 1, badJoins: 2, badLeases: 2}
		var seen []error
		fed := 0
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, newStation(t, c).Start(ctx, func() { fed++ }, time.Hour,
			func(err error) { seen = append(seen, err) }))
		require.Len(t, seen, 5)
		require.ErrorIs(t, seen[0], errChip)
		require.Equal(t, 2, c.restarts, "the first one failed")
		require.GreaterOrEqual(t, fed, int(time.Since(began).Seconds()))
	})
}

// The watchdog ends a Start that takes too long.
func TestStartFeedsTheWatchdogForItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chip{badJoins: 1 << 30}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		var last time.Duration
		err := newStation(t, c).Start(ctx, func() { last = time.Since(began) }, 10*time.Minute, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.InDelta(t, (10 * time.Minute).Seconds(), last.Seconds(), 2)
	})
}

func TestDialJoinsAgainWhenTheAccessPointWentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chip{lease: time.Hour}
		s := newStation(t, c)
		start(t, s)
		c.joined, c.badJoins, c.steps = false, 2, nil
		for range 2 {
			_, err := s.Dial(t.Context(), nil)
			require.ErrorIs(t, err, errChip)
		}
		_, err := s.Dial(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, "join, join, join, lease, dial gateway:1883", strings.Join(c.steps, ", "))
	})
}

// A chip that hangs says that it is joined.
func TestManyFailuresRestartTheChip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chip{lease: time.Hour}
		s := newStation(t, c)
		start(t, s)
		c.badDials = 8
		for range 8 {
			require.Equal(t, 1, c.restarts)
			_, err := s.Dial(t.Context(), nil)
			require.ErrorIs(t, err, errChip)
		}
		_, err := s.Dial(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 2, c.restarts)
		require.Equal(t, 2, c.joins)
		c.badDials = 7 // in a row
		for i := range 16 {
			_, err := s.Dial(t.Context(), nil)
			require.Equal(t, i%8 != 7, err != nil)
			if err == nil {
				c.badDials = 7
			}
		}
		require.Equal(t, 2, c.restarts)
	})
}

func TestACancelledDialIsNoFailureOfTheChip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chip{lease: time.Hour}
		s := newStation(t, c)
		start(t, s)
		c.badDials = 20
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			_, err := s.Dial(ctx, nil)
			cancel()
			require.Error(t, err)
			_, err = s.Dial(ctx, nil)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Zero(t, c.badDials)
		_, err := s.Dial(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 1, c.restarts)
	})
}

func TestAConnectionEndsWithHalfOfTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chip{lease: time.Hour}
		s := newStation(t, c)
		start(t, s)
		conn, err := s.Dial(t.Context(), nil)
		require.NoError(t, err)
		_, err = conn.Read(nil)
		require.ErrorIs(t, err, errChip)
		time.Sleep(30 * time.Minute)
		_, err = conn.Read(nil)
		require.ErrorContains(t, err, "the lease of the address ends")
		conn, err = s.Dial(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 2, c.leases)
		_, err = conn.Read(nil)
		require.ErrorIs(t, err, errChip)
	})
}

// A server that grants no time must not make the board ask without end.
func TestAShortLeaseLastsAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chip{}
		s := newStation(t, c)
		start(t, s)
		for range 10 {
			_, err := s.Dial(t.Context(), nil)
			require.NoError(t, err)
		}
		require.Equal(t, 1, c.leases)
	})
}

func TestTheClockIsSetEachDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chip{lease: 1000 * time.Hour}
		s := newStation(t, c)
		start(t, s)
		dial := func() {
			t.Helper()
			_, err := s.Dial(t.Context(), nil)
			require.NoError(t, err)
		}
		dial()
		require.Equal(t, 1, c.asks)
		time.Sleep(24 * time.Hour)
		dial()
		dial()
		require.Equal(t, 2, c.asks)
		time.Sleep(24 * time.Hour)
		c.silent = true // the clock stays as it is, and the next attempt is an hour later
		dial()
		dial()
		require.Equal(t, 4, c.asks)
		require.InDelta(t, ahead.Seconds(), time.Until(s.Now()).Seconds(), 1)
		time.Sleep(time.Hour)
		c.silent = false
		dial()
		require.Equal(t, 5, c.asks)
	})
}

// Before the clock is set nothing can be signed, so Dial says why.
func TestWithoutATimeServerThereIsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chip{lease: time.Hour, silent: true}
		_, err := newStation(t, c).Dial(t.Context(), nil)
		require.ErrorContains(t, err, "did not answer")
		require.Equal(t, 2, c.asks, "one attempt for each server")
	})
}

func TestNewNamesMissingFields(t *testing.T) {
	for word, spoil := range map[string]func(*wifi.Config){
		"Radio": func(c *wifi.Config) { c.Radio = nil }, "Stack": func(c *wifi.Config) { c.Stack = nil },
		"Addr": func(c *wifi.Config) { c.Addr = "" }, "Rand": func(c *wifi.Config) { c.Clock.Rand = nil },
		"Servers": func(c *wifi.Config) { c.Clock.Servers = nil },
	} {
		c := config(&chip{})
		spoil(&c)
		_, err := wifi.New(c)
		require.ErrorContains(t, err, word)
	}
}
