package amqp

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Mux is a Transport whose sessions share one connection. It is for a gateway with up to a thousand
// devices and modules of one hub. Each device has its own AMQP session, token, links and errors,
// and its client has its own loop, retry policy and status, so a failure of one device does not
// disturb the others. A device joins when its client is opened and leaves when it is closed, at any
// time.
//
// The connection is dialed when the first device joins and closed when the last one leaves. When it
// is lost, all devices lose their sessions. It is dialed once for all, and Options.Parallel devices
// at a time authenticate again.
//
// On a slow connection the devices take turns: the bytes in flight follow the rate of the
// connection. While the hub answers earlier requests, a later answer is not late, however long it
// takes, but for that to a renewal. When the hub is silent although it owes an answer
// (Options.IdleTimeout), the connection is lost for all.
//
// Devices authenticate by CBS, so each needs credentials with Sign or Token. With
// Options.Addresses the device that begins a dial authenticates the connection for all, by SASL or
// certificate. Before that token or certificate expires, the devices move to a new connection, each
// at the time of its device.Options.RenewAt, and the last one closes the old connection. A Mux is
// safe for concurrent use. It needs no Close.
type Mux struct {
	opt Options
	err error // what Dial returns for wrong options

	made   time.Time // by NewMux; the reference for clocks
	learnt learnt

	slots   chan struct{} // one for each device that is being authenticated
	granted atomic.Uint32 // slots that were granted after a wait

	mu      sync.Mutex // guards the fields below; never held during I/O
	conn    *connection
	retired []*connection   // still have users
	moving  map[string]bool // the devices, by resource, that leave a retired connection to come back
	dialing *dialing        // nil: there is no dial
	changed chan struct{}   // closed, and replaced, when a dial begins or ends

	// After a failed dial other devices do not dial that host before pausedUntil. The device that
	// dialed may: its own policy sets the delay. Other hosts are not affected, as one of the two names
	// may be mistyped, nor are other clocks by one that is not set.
	pause       time.Duration
	pausedUntil time.Time
	lastErr     *transport.Error
	lastHost    string
	lastDialer  string // the device's resource
	lastSkew    time.Duration

	connected chan struct{} // closed when a device is accepted on a connection; nil: no waiters
}

var _ transport.Transport = (*Mux)(nil)

// NewMux returns a Mux with the given options, which are copied; nil means all defaults. Wrong
// options are reported by Check, which device.New calls, and by Dial, with Kind Invalid.
func NewMux(o *Options) *Mux {
	m := &Mux{made: time.Now(), changed: make(chan struct{})}
	m.opt, m.err = o.resolve()
	if m.err == nil && m.opt.Addresses == nil && m.opt.Auth != AuthDefault && m.opt.Auth != AuthCBS {
		m.err = protocol.Invalid("options: Auth is " + m.opt.Auth.String() + ", which authenticates one device per " +
			"connection; a Mux needs CBS")
	}
	m.slots = make(chan struct{}, max(1, m.opt.Parallel))
	return m
}

// Check reports wrong options, and a device without tokens, which a Mux to a hub needs.
func (m *Mux) Check(creds *transport.Credentials) error {
	if m.err == nil && m.opt.Addresses == nil && creds.Sign == nil && creds.Token == nil {
		return protocol.Invalid("credentials have neither Sign nor Token, which a Mux needs; a device with a certificate " +
			"needs a Transport of its own")
	}
	return m.err
}

// Dial makes a session for the device, on the present connection or a new one. The errors are those
// of Transport.Dial, and Quota when Options.Devices have joined already, or as many as the peer
// allows.
//
// There is one dial at a time, and all devices that join meanwhile wait for it. It continues when
// the device that began it leaves. It fails with Timeout after Options.OperationTimeout. An error
// that is not retried, such as Untrusted, fails the calls of all whose clocks show about the same
// time. With Options.Addresses the dial includes the login of one device, so only Untrusted does.
//
// While the hub cannot be reached, the device that dialed retries as its policy says; if it does
// not, another device dials. The calls of the others wait for a success, and return the latest
// failure after 8 s. Their retries begin at once when the Mux is connected again
// (transport.Error.Passed). An error with RetryAfter is returned at once.
func (m *Mux) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	if err := cfg.Creds.Validate(); err != nil {
		return nil, protocol.Error(err)
	}
	if err := m.Check(cfg.Creds); err != nil {
		return nil, err
	}
	s, err := m.join(ctx, cfg)
	if err != nil {
		return nil, m.untilConnected(dialError(ctx, err))
	}
	return s, nil
}

// untilConnected sets Passed of an error that ends when the Mux is connected. So a device does not
// add its own delay to the delay of the device that dials.
func (m *Mux) untilConnected(e *transport.Error) *transport.Error {
	switch e.Kind {
	case transport.Network, transport.Timeout, transport.Unavailable, transport.ClockUnset:
	case transport.Protocol:
		if !errors.Is(e, transport.ErrViolation) {
			return e
		}
	default:
		return e
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.RetryAfter != 0 || m.conn != nil && m.conn.accepted && !m.conn.Gone() {
		return e
	}
	if m.connected == nil {
		m.connected = make(chan struct{})
	}
	own := *e
	own.Passed = m.connected
	return &own
}

// join authenticates a device and makes its session.
func (m *Mux) join(ctx context.Context, cfg *transport.Config) (*session, error) {
	addr, err := m.opt.addresses(cfg.Creds)
	if err != nil {
		return nil, err
	}
	var l login
	var refusal error
	asked := false
	proof := func() (login, error) { // not sync.OnceValues, which panics when the function calls runtime.Goexit
		if !asked {
			l, refusal = m.prove(ctx, cfg)
			asked = true
		}
		return l, refusal
	}
	conn, err := m.connection(ctx, cfg, proof)
	if err != nil {
		return nil, err
	}
	var s *session
	defer func() {
		if s == nil { // else the session releases the connection
			m.release(conn)
		}
	}()
	if _, err := proof(); err != nil {
		return nil, err
	}
	err = m.withSlot(ctx, cfg.Progress, func() error {
		if l.auth == AuthCBS {
			if err := conn.tokens.put(ctx, cfg.Creds.Resource(), l.token.Text.Reveal(), cfg.Progress); err != nil {
				return err
			}
		}
		s = newSession(cfg, &m.opt, conn, &l, addr)
		s.shared = true
		s.release = func() { m.release(conn) }
		s.retire = func() { m.retire(conn, cfg.Creds.Resource()) }
		return s.check(ctx)
	})
	if err != nil {
		return nil, err
	}
	m.accept(conn, cfg.Creds.Resource())
	return s, nil
}

// retire makes devices that join from now on dial a new connection, because the login of c is about
// to expire. The devices on c leave it when their own renewals are due, which is not at the same
// time, and the last one closes it. resource is the device that renews, which leaves now.
func (m *Mux) retire(c *connection, resource string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn == c {
		m.conn = nil
		m.retired = append(m.retired, c)
	}
	if m.moving == nil || len(m.moving) >= m.opt.Devices { // some have not come back
		m.moving = make(map[string]bool)
	}
	m.moving[resource] = true
}

// prove gets the login of a device. With Addresses it belongs to the connection, and is made at the
// dial.
func (m *Mux) prove(ctx context.Context, cfg *transport.Config) (l login, err error) {
	if m.opt.Addresses != nil {
		return login{auth: m.opt.auth(cfg.Creds)}, nil
	}
	err = m.withSlot(ctx, cfg.Progress, func() error {
		l, err = m.opt.prove(ctx, cfg.Creds)
		return err
	})
	return l, err
}

// slotLimit is how long a device may keep its slot, so that slow tokens do not block other devices.
const slotLimit = time.Second

// withSlot waits for a slot and runs f in it. While it waits, it calls progress, unless nil, when
// other devices get slots.
func (m *Mux) withSlot(ctx context.Context, progress func(), f func() error) error {
	if err := m.waitSlot(ctx, progress); err != nil {
		return err
	}
	release := sync.OnceFunc(func() { <-m.slots })
	defer release()
	limit := time.AfterFunc(slotLimit, release)
	defer limit.Stop()
	return f()
}

func (m *Mux) waitSlot(ctx context.Context, progress func()) error {
	select {
	case m.slots <- struct{}{}:
		return nil
	default:
	}
	every := time.NewTicker(progressInterval)
	defer every.Stop()
	for {
		before := m.granted.Load()
		select {
		case m.slots <- struct{}{}:
			m.granted.Add(1)
			return nil
		case <-every.C:
			if progress != nil && m.granted.Load() != before {
				progress()
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
