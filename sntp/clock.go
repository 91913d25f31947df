package sntp

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Conn is a datagram connection to one server. A net.Conn of UDP satisfies it.
type Conn interface {
	// Read returns one datagram. It cuts a datagram that does not fit in p.
	Read(p []byte) (int, error)
	// Write sends one datagram.
	Write(p []byte) (int, error)
	Close() error
	// SetReadDeadline makes a Read after t fail. Its error has a method Timeout that returns true.
	SetReadDeadline(t time.Time) error
}

// Dial connects to a server of Options.Servers. It must end when ctx does.
type Dial func(ctx context.Context, server string) (Conn, error)

// Options are the settings of a Clock. Servers and Rand are required.
type Options struct {
	// Servers are what Dial gets: names and ports in a form that it understands. They are asked in
	// turn.
	Servers []string
	// Rand returns random bits, which an answer must repeat. Give a source that nobody can guess:
	// rand.Uint64 of math/rand/v2, or the board's hardware generator.
	Rand func() uint64
	// Quorum is the number of servers whose times must agree within Tolerance before the clock is
	// set. Default: 1.
	Quorum int
	// Tolerance is how far times may differ for Quorum. Default: 5 s.
	Tolerance time.Duration
	// Earliest is a time that is in the past for certain. Default: the publication of this version of
	// the module.
	Earliest time.Time
	// Timeout is how long an attempt waits for the answer. Default: 5 s.
	Timeout time.Duration
	// MaxRoundTrip is the longest round trip of an accepted answer. The clock is wrong by at most half
	// of it. Default: 2 s.
	MaxRoundTrip time.Duration
	// Policy decides about the retries of Sync. No server is asked twice within 15 s in any case (RFC
	// 4330, section 10). Default: ExponentialBackoffWithJitter from 1 s to 64 s, for ever.
	Policy retrypolicy.Policy
	// Interval is the time between two calls of Sync by Run, shortened by up to a quarter at random.
	// Default: 6 h. At least 15 s.
	Interval time.Duration
	// Now is the board's own clock, which runs evenly. Default: time.Now. The time in which the system
	// was suspended counts if the date of this clock was right within Tolerance when it was last
	// compared with the servers'.
	Now func() time.Time
	// OnAttempt is called after each attempt, by the goroutine of Sync. Default: none.
	OnAttempt func(Attempt)
}

// Attempt is the outcome of one request.
type Attempt struct {
	// Server is the name from Options.Servers.
	Server string
	// Err is why the answer was not accepted, nil for an accepted one.
	Err error
	// Time is the accepted time, at the moment of the call; set a clock chip to it.
	Time time.Time
	// Step is how far it was ahead of Clock.Now. RoundTrip is that of the request.
	Step, RoundTrip time.Duration
	// Set reports whether the clock was set.
	Set bool
}

// Clock is a clock that is set from time servers. Its methods are safe for concurrent use. Only one
// call of Sync or Run may run at a time.
type Clock struct {
	dial     Dial
	opt      Options
	earliest transport.Credentials // for its method Implausible
	busy     atomic.Bool

	// for Sync only
	servers []server
	latest  int // index of the latest asked server
	in      [packetSize]byte
	out     [packetSize]byte
	alarm   chan struct{} // capacity 1
	timer   *time.Timer

	mu    sync.Mutex
	real  time.Time // the time when the own clock was own; zero: never set
	own   time.Time
	right bool // the own clock's date agreed with real
}

const (
	// floor is the shortest time between two requests to a server (RFC 4330, section 10).
	floor = 15 * time.Second
	// maxSpacing bounds what a server that asks for fewer requests gets.
	maxSpacing = 24 * time.Hour
)

// New returns a Clock that is not set. The error, of Kind Invalid, names a wrong option.
func New(dial Dial, o *Options) (*Clock, error) {
	if o == nil {
		o = new(Options)
	}
	c := &Clock{dial: dial, opt: *o, alarm: make(chan struct{}, 1), latest: -1}
	if wrong := c.opt.complete(); wrong != "" {
		return nil, invalid(wrong)
	}
	if dial == nil {
		return nil, invalid("dial is nil; give the function that connects")
	}
	if err := retrypolicy.Validate(c.opt.Policy); err != nil {
		return nil, err
	}
	c.earliest.Earliest = c.opt.Earliest
	c.servers = make([]server, len(c.opt.Servers))
	for i, name := range c.opt.Servers {
		c.servers[i] = server{name: name, spacing: floor}
	}
	c.opt.Servers = nil // the caller's
	return c, nil
}

func invalid(text string) error {
	return &transport.Error{Kind: transport.Invalid, Proto: proto, Err: errors.New(text)}
}

// complete sets the defaults and returns what is wrong, or "".
func (o *Options) complete() string {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.Tolerance, 5 * time.Second}, {&o.Timeout, 5 * time.Second},
		{&o.MaxRoundTrip, 2 * time.Second}, {&o.Interval, 6 * time.Hour},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if o.Quorum == 0 {
		o.Quorum = 1
	}
	if o.Policy == nil {
		o.Policy = retrypolicy.ExponentialBackoffWithJitter{C: time.Second, Cmin: time.Second, Cmax: 64 * time.Second}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	for _, f := range []struct {
		wrong bool
		text  string
	}{
		{len(o.Servers) == 0, "Options.Servers is empty; give one at least"},
		{o.Rand == nil, "Options.Rand is nil; give rand.Uint64 of math/rand/v2, or the board's generator"},
		{o.Quorum < 0 || o.Quorum > len(o.Servers), "Options.Quorum is out of range; give 1 to the number of Servers"},
		{o.Timeout < 0 || o.MaxRoundTrip < 0 || o.Tolerance < 0,
			"Options.Timeout, MaxRoundTrip or Tolerance is negative; give a duration, 0 for the default"},
		{o.Interval < floor, "Options.Interval is below 15 s; servers do not serve clients that ask more often"},
	} {
		if f.wrong {
			return f.text
		}
	}
	return ""
}

// Now returns the time of the servers, advanced by the board's own clock. Before the clock is set
// it returns the board's own time. It suits transport.Credentials.Now.
func (c *Clock) Now() time.Time {
	now := c.opt.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real.IsZero() {
		return now
	}
	passed := now.Sub(c.own) // a monotonic clock may stand still while the system is suspended
	if date := now.Round(0).Sub(c.own); c.right && date > passed {
		passed = date
	}
	return c.real.Add(passed)
}

// IsSet reports whether a server has set the clock.
func (c *Clock) IsSet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.real.IsZero()
}

// set sets the clock: it is t when the own clock shows own.
func (c *Clock) set(t, own time.Time) {
	c.mu.Lock()
	c.real, c.own = t, own
	c.right = t.Sub(own.Round(0)).Abs() <= c.opt.Tolerance
	c.mu.Unlock()
}
