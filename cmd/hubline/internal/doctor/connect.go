package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// client is a device client that does not retry, and its latest failure.
type client struct {
	*device.Client
	lost chan struct{} // closed when the connection ended

	mu  sync.Mutex
	err error // guarded by mu
}

// open connects over t.
func (p *Probe) open(ctx context.Context, creds *transport.Credentials, t transport.Transport) (*client, error) {
	c := &client{lost: make(chan struct{})}
	var once sync.Once
	var err error
	c.Client, err = device.New(creds, t, &device.Options{
		RetryPolicy: retrypolicy.NoRetry{}, DialTimeout: p.Options.Timeout, AckTimeout: p.Options.Timeout,
		OnStatus: func(s device.Status) {
			if s.Err == nil {
				return
			}
			c.mu.Lock()
			c.err = s.Err
			c.mu.Unlock()
			if s.State != device.StateConnected {
				once.Do(func() { close(c.lost) })
			}
		},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := p.limit(ctx)
	defer cancel()
	if err := c.Open(ctx); err != nil {
		return nil, errors.Join(c.last(err), c.Close())
	}
	return c, nil
}

// last returns the failure that the client reported, or err.
func (c *client) last(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return err
}

// runConnect connects over a transport and sends messages.
func runConnect(ctx context.Context, p *Probe, s subject) []Row {
	t, creds, err := p.Target.Open(s.protocol)
	if err != nil {
		return bad(err)
	}
	begin := time.Now()
	c, err := p.open(ctx, creds, t)
	if err != nil {
		return p.unopened(ctx, err, s)
	}
	defer c.Close()
	rows := fine("in " + took(time.Since(begin)))
	if p.Options.NoMessages {
		return rows
	}
	message, trip := p.message(ctx, c)
	if message.Mark == OK {
		message, trip = p.judgeTrip(message, trip, s.site)
	}
	message.Check = label("message", s.name)
	rows = append(rows, message)
	if message.Mark != Bad && p.Options.Burst > 0 {
		burst := p.burst(ctx, c, trip)
		burst.Check = label("throttling", s.name)
		rows = append(rows, burst)
	}
	return rows
}

// mqtt311 are the transports that are MQTT 3.1.1.
var mqtt311 = []string{"mqtt", "mqtt-ws"}

// ambiguous is the sentence about an answer of MQTT 3.1.1 that has three meanings.
const ambiguous = "the service is restarting and will be back, or it throttles, or a quota is used up: over MQTT " +
	"3.1.1 it has one answer for all three (http says which)"

// unopened returns the row of a connection that was not made.
func (p *Probe) unopened(ctx context.Context, err error, s subject) []Row {
	rows := bad(err)
	switch {
	case rows[0].Kind == transport.Timeout:
		rows[0].Hint = "the service did not answer the login within " + took(p.Options.Timeout) + "; " + rows[0].Hint
	case rows[0].Kind == transport.Unavailable && slices.Contains(mqtt311, s.protocol.Name):
		rows[0].Hint, rows[0].vague = cause(err).Error()+"; "+ambiguous, true
	case isEnded(err) && slices.Contains(mqtt311, s.protocol.Name):
		rows[0].Hint, rows[0].vague = "the service ended the connection after the login: "+ended+rows[0].Hint, true
	}
	return p.otherwise(ctx, rows, s.site, p.wanted(s))
}

// isEnded reports whether the network failed after the service had accepted the device.
func isEnded(err error) bool {
	e := transport.Find(cause(err))
	return e != nil && e.Op == transport.OpRun && e.Kind == transport.Network
}

// probeMessage is a message that a back end recognizes. It has no properties, because a broker with
// MQTT 3.1.1 has no place for them.
func probeMessage() *transport.Message {
	return &transport.Message{Body: []byte(`{"hubline-doctor":1}`)}
}

// message sends one message and returns its row and its round trip.
func (p *Probe) message(ctx context.Context, c *client) (Row, time.Duration) {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	begin := time.Now()
	if err := c.Send(ctx, probeMessage()); err != nil {
		return unsent(c.last(err)), 0
	}
	trip := time.Since(begin)
	return Row{Mark: OK, Figure: "acknowledged in " + took(trip), Hint: "the service takes messages"}, trip
}

// ended says why a service may end a connection that worked.
const ended = "over MQTT it has no other answer when a quota is used up or messages are too many (http says which); " +
	"or another program took the device's id over; "

// unsentHints say what the end of a message on a connection that works may mean.
var unsentHints = map[transport.Kind]string{
	transport.Network: "the service ended the connection at a message: " + ended,
	transport.Timeout: "the message went out, and no acknowledgement came; ",
}

// unsent returns the row of a message that failed.
func unsent(err error) Row {
	row := bad(err)[0]
	row.Hint, row.vague = unsentHints[row.Kind]+row.Hint, row.Kind == transport.Network
	return row
}

// Acknowledgements that take this long, and so many times the round trip of a single message, are
// delayed by the service.
const (
	slowAnswer = time.Second
	slowTimes  = 5
)

// judgeTrip returns the row of a message that was acknowledged, and the round trip to expect of
// others: that of the network if the service delayed this one.
func (p *Probe) judgeTrip(row Row, trip time.Duration, s *site) (Row, time.Duration) {
	network := p.reached[s.address]
	if trip <= slowAnswer {
		return row, trip
	}
	if trip > slowTimes*network {
		return warn(row.Figure, fmt.Sprintf("the network answers in %s, so the service delays acknowledgements: it "+
			"throttles; "+throttleHelp, took(network)))[0], network
	}
	return warn(row.Figure, "the network is slow: it answers in "+took(network))[0], trip
}

// burst sends messages at once. A service that throttles refuses some, or delays their
// acknowledgements. trip is the round trip to expect.
func (p *Probe) burst(ctx context.Context, c *client, trip time.Duration) Row {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	begin := time.Now()
	receipts := make([]device.Receipt, p.Options.Burst)
	for i := range receipts {
		if err := c.Enqueue(ctx, probeMessage(), &receipts[i]); err != nil {
			return unsent(c.last(err))
		}
	}
	for i := range receipts {
		err := receipts[i].Wait(ctx)
		if err != nil && c.last(nil) == nil && errors.Is(err, context.DeadlineExceeded) {
			return wrong(transport.Throttled, fmt.Sprintf("%d of %d in %s", i, len(receipts), took(time.Since(begin))),
				slowHint)[0]
		}
		if err != nil {
			return unsent(c.last(err))
		}
	}
	elapsed := time.Since(begin)
	figure := fmt.Sprintf("%d messages in %s", len(receipts), took(elapsed))
	if elapsed > slowAnswer && elapsed > slowTimes*trip {
		return wrong(transport.Throttled, figure, slowHint)[0]
	}
	return Row{Mark: OK, Figure: figure, Hint: "the service does not slow the device down"}
}

const (
	slowHint     = "the service delays acknowledgements: it throttles, or the network is too slow; " + throttleHelp
	throttleHelp = "send less often, in larger messages, or add units to the hub"
)
