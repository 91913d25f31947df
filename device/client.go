package device

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// Client keeps one device connected and delivers its messages. Make one with New, and call Close
// when it is no longer needed.
type Client struct {
	creds     *transport.Credentials
	lent      *transport.Credentials // given to transports: creds with a clock that always returns
	transport transport.Transport
	set       settings

	// Read by the loop, written by any goroutine, which then calls poke.
	policies  atomic.Pointer[policies]
	sink      sink
	fixed     atomic.Bool // the latest token cannot be renewed
	reconnect atomic.Bool
	progress  atomic.Bool   // the running dial made progress
	wake      chan struct{} // capacity 1; carries no data: the loop checks everything

	queue       *queue
	featureList atomic.Pointer[features] // replaced under mu
	events      chan event               // to the loop, from a session and its goroutine
	calls       chan *call               // idle ones, for reuse

	closed chan struct{} // closed when Close has ended

	mu       sync.Mutex // guards the fields below; held briefly
	status   Status
	changed  chan struct{} // closed at the next status; nil without waiters
	run      *run          // the latest loop, nil before the first
	shut     bool          // Close was called
	inbox    *inbox        // the features are nil until first used
	twin     *twin
	methods  *methods
	notices  notices
	counters counters

	hurried time.Time // when the program last had an attempt begin; of the loop that runs
}

// run is one life of the loop, from Start to Disconnected.
type run struct {
	cancel func()
	done   chan struct{} // closed when the loop has ended

	// Guarded by Client.mu.
	kept   bool   // a caller other than the Open that started it uses it
	over   bool   // it has ended and publishes no further status
	err    error  // why it ended; valid when over
	last   error  // the latest failure while not connected
	hangUp func() // ends the latest session that was up; nil: none
}

// New returns a Disconnected client whose queue takes messages by Enqueue. It dials nothing and
// starts no goroutine before Open or Start. t carries the messages; o may be nil. The error, of
// Kind Invalid, names the invalid field of creds, of o or of the transport's options.
func New(creds *transport.Credentials, t transport.Transport, o *Options) (*Client, error) {
	if creds == nil {
		return nil, invalidOption("credentials are nil; make them with ParseConnectionString, or fill transport.Credentials")
	}
	if err := creds.Validate(); err != nil {
		return nil, err
	}
	if t == nil {
		return nil, invalidOption("transport is nil; pass one, mqtt.New(nil) for instance")
	}
	set, err := newSettings(o)
	if err != nil {
		return nil, err
	}
	if checker, ok := t.(transport.Checker); ok {
		if err := checker.Check(creds); err != nil {
			return nil, err
		}
	}
	own := *creds
	c := &Client{
		creds: &own, transport: t, set: set,
		wake:   make(chan struct{}, 1),
		events: make(chan event, 4),
		calls:  make(chan *call, 8),
		closed: make(chan struct{}),
		status: Status{State: StateDisconnected, Reason: ReasonNotOpened, Since: time.Now()},
	}
	if source := creds.Token; source != nil {
		own.Token = func(ctx context.Context) (transport.Token, error) {
			token, err := source(ctx)
			c.fixed.Store(err == nil && token.Fixed)
			return token, err
		}
	}
	first := policies{connection: reconnect.Policies{Paced: set.PacedPolicy}}.
		withConnection(set.RetryPolicy).withMessage(set.MessagePolicy)
	c.policies.Store(&first)
	if c.set.Rand == nil {
		c.set.Rand = rand.NewPCG(texts.Hash(own.Resource()), uint64(time.Now().UnixNano())).Uint64
	}
	c.lent = withSafeClock(&own)
	c.queue = newQueue(&set, c.lent.Time, c.poke)
	c.sink = sink{c.queue.done, c.replied, c.deliver}
	return c, nil
}

// progressed restarts the time-out of the running dial. It is transport.Config.Progress.
func (c *Client) progressed() {
	c.progress.Store(true)
	c.poke()
}

// poke wakes the loop if it sleeps.
func (c *Client) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Status returns the latest status, as OnStatus got it or will get it. Its field Missed is for
// OnStatus only.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// trouble returns the failure that keeps the client from being connected, nil if there is none.
func (c *Client) trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == nil {
		return nil
	}
	return c.run.last
}

// Stats returns counters since New and current levels. It does not block.
func (c *Client) Stats() Stats {
	s := c.queue.stats()
	if x := c.features(); x != nil {
		x.fill(&s)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counters.fill(&s, time.Now())
	return s
}

// features returns the client's features, nil if it has none.
func (c *Client) features() features {
	if list := c.featureList.Load(); list != nil {
		return *list
	}
	return nil
}

// addFeatureLocked makes x a feature of the client.
func (c *Client) addFeatureLocked(x *feature) {
	if c.shut {
		x.end()
	}
	if why := c.queue.whyHalted(); why != nil && x.halt != nil {
		x.halt(why)
	}
	all := append(slices.Clip(c.features()), x)
	c.featureList.Store(&all)
	c.poke()
}

// lacks returns the error of op when no session of the transport has the feature, nil if one may.
func (c *Client) lacks(feature transport.Features, op transport.Op) *transport.Error {
	limited, ok := c.transport.(transport.Limited)
	if !ok {
		return nil
	}
	why := limited.Lacks(c.lent, feature)
	if why == "" {
		return nil
	}
	what := feature.String()
	if feature == transport.FeatureMessages && c.creds.ModuleID != "" {
		what = "inputs of modules"
	}
	return &transport.Error{Kind: transport.Unsupported, Op: op, Err: errors.New(what + " are " + why)}
}

func (c *Client) replied(id uint32, r transport.Reply) {
	switch id {
	case subscribeID:
		c.events <- event{subscribed: true, err: r.Err}
		return
	case renewID:
		c.events <- event{renewed: &r.Expires, err: r.Err}
		return
	}
	if x := c.features(); x != nil {
		x.reply(id, r)
	}
}

func (c *Client) deliver(d *transport.Delivery) bool {
	x := c.features()
	return x != nil && x.deliver(d)
}

// halt fails everything that waits for a connection, except enqueued messages. The status is
// Disconnected; c.mu is held.
func (c *Client) halt(why *transport.Error) {
	c.queue.halt(why)
	if x := c.features(); x != nil {
		x.halt(why)
	}
}
