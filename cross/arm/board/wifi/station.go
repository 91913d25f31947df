package wifi

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/sntp"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// Radio is a Wi-Fi chip. Its methods may block for some 10 s; they sleep meanwhile, so that other
// goroutines run.
type Radio interface {
	// Restart switches the chip off and on, and loads its firmware.
	Restart() error
	// Join joins the access point. The chip may have joined it before.
	Join() error
	// Joined reports whether the chip still hears the access point.
	Joined() bool
}

// Stack is an IP stack over the radio.
type Stack interface {
	// Lease asks for an address by DHCP and returns for how long the board may use it.
	Lease() (time.Duration, error)
	// DialTCP connects to a host and port. It ends when ctx does.
	DialTCP(ctx context.Context, addr string) (engine.Conn, error)
	// DialUDP returns a connection for datagrams to a host and port. It ends when ctx does.
	DialUDP(ctx context.Context, addr string) (sntp.Conn, error)
}

// Config has the parts of a Station. All but Clock are required.
type Config struct {
	Radio Radio
	Stack Stack
	// Addr is the host and port of the hub's gateway, or of a broker.
	Addr string
	// Clock are the settings of the clock; Servers and Rand are required. Default for Policy: one
	// attempt for each server.
	Clock sntp.Options
}

const (
	// failuresToRestart is after how many failures in a row the chip is restarted, because a chip
	// can hang and still say that it has joined.
	failuresToRestart = 8
	// leaseFloor bounds how often a server makes the board ask for an address.
	leaseFloor = time.Minute
	// clockInterval is the time between two settings of the clock.
	clockInterval = 24 * time.Hour
	// clockRetry is the time between two attempts to correct a clock that is set.
	clockRetry = time.Hour
	// pauseBetween is the time between two attempts of Start.
	pauseBetween = 5 * time.Second
	// feedEvery is how often Start feeds the watchdog.
	feedEvery = time.Second
)

var errLeaseEnds = errors.New("wifi: the lease of the address ends; connect again")

// Station is a board in a Wi-Fi network. Only one goroutine may call Start and Dial at a time; any
// may call Now.
type Station struct {
	cfg   Config
	clock *sntp.Clock

	on       bool // the chip has its firmware
	leased   bool
	renew    time.Time // half of the lease is over
	correct  time.Time // when to set the clock again
	failures int       // in a row
}

// New returns a Station. The error names a wrong field.
func New(c Config) (*Station, error) {
	switch {
	case c.Radio == nil:
		return nil, errors.New("wifi: Radio is nil; give the chip's driver")
	case c.Stack == nil:
		return nil, errors.New("wifi: Stack is nil; give the IP stack")
	case c.Addr == "":
		return nil, errors.New("wifi: Addr is empty; give host:port of the hub's gateway, or of a broker")
	}
	if c.Clock.Policy == nil {
		c.Clock.Policy = retrypolicy.MaxAttempts{Total: max(1, len(c.Clock.Servers)),
			Policy: retrypolicy.ExponentialBackoffWithJitter{}}
	}
	clock, err := sntp.New(c.Stack.DialUDP, &c.Clock)
	if err != nil {
		return nil, err
	}
	return &Station{cfg: c, clock: clock}, nil
}

// Now returns the time of the servers, or the board's own while the clock is unset.
func (s *Station) Now() time.Time { return s.clock.Now() }

// Start joins, leases an address and sets the clock. It tries again until it succeeds or ctx ends,
// and calls feed each second for at most limit: then the watchdog resets the board. report, unless
// nil, gets each failure.
func (s *Station) Start(ctx context.Context, feed func(), limit time.Duration, report func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan error, 1)
	go func() {
		for {
			err := s.reach(ctx)
			if err == nil || ctx.Err() != nil {
				ready <- ctx.Err()
				return
			}
			if report != nil {
				report(err)
			}
			wait(ctx, pauseBetween)
		}
	}()
	for end := time.Now().Add(limit); ; time.Sleep(feedEvery) {
		select {
		case err := <-ready:
			return err
		default:
		}
		if time.Now().Before(end) {
			feed()
		}
	}
}

// wait sleeps for d, or less if ctx ends.
func wait(ctx context.Context, d time.Duration) {
	for ; d > 0 && ctx.Err() == nil; d -= feedEvery {
		time.Sleep(min(d, feedEvery))
	}
}

// Dial is an engine.Dial. It first repairs what is lost: the association, the address, the clock.
// The connection ends when half of the lease is over; the next Dial renews the lease.
func (s *Station) Dial(ctx context.Context, _ *transport.Credentials) (engine.Conn, error) {
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	conn, err := s.cfg.Stack.DialTCP(ctx, s.cfg.Addr)
	if err = s.count(ctx, err); err != nil {
		return nil, err
	}
	s.failures = 0
	return leasedConn{conn, s.renew}, nil
}

// reach brings the board to where it can dial.
func (s *Station) reach(ctx context.Context) error {
	for _, step := range [...]func(context.Context) error{s.powerUp, s.join, s.lease, s.setClock} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.count(ctx, step(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// count counts failures in a row. A cancelled step is none.
func (s *Station) count(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() != nil:
	case s.failures+1 < failuresToRestart:
		s.failures++
	default:
		s.on, s.failures = false, 0
	}
	return err
}

func (s *Station) powerUp(context.Context) error {
	if s.on {
		return nil
	}
	s.leased = false
	err := s.cfg.Radio.Restart()
	s.on = err == nil
	return err
}

func (s *Station) join(context.Context) error {
	if s.cfg.Radio.Joined() {
		return nil
	}
	s.leased = false // perhaps another network of the same name
	return s.cfg.Radio.Join()
}

func (s *Station) lease(context.Context) error {
	if s.leased && time.Now().Before(s.renew) {
		return nil
	}
	s.leased = false
	d, err := s.cfg.Stack.Lease()
	if err != nil {
		return err
	}
	s.leased, s.renew = true, time.Now().Add(max(d/2, leaseFloor))
	return nil
}

// setClock sets the clock. A clock that was set before stays as it is if no server answers.
func (s *Station) setClock(ctx context.Context) error {
	now := time.Now()
	if s.clock.IsSet() && now.Before(s.correct) {
		return nil
	}
	err := s.clock.Sync(ctx)
	switch {
	case err == nil:
		s.correct = now.Add(clockInterval)
	case s.clock.IsSet():
		s.correct, err = now.Add(clockRetry), nil
	}
	return err
}

// leasedConn is a connection that ends at a time.
type leasedConn struct {
	engine.Conn
	end time.Time
}

// Read implements engine.Conn. A Read that is waiting at the end returns at its own deadline.
func (c leasedConn) Read(p []byte) (int, error) {
	if !time.Now().Before(c.end) {
		return 0, errLeaseEnds
	}
	return c.Conn.Read(p)
}
