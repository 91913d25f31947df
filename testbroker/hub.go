package testbroker

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hubline-iot/hubline/internal/memconn"
)

const (
	// DefaultHostName is the hub's name when Options do not give one.
	DefaultHostName = "hub.example.test"
	// DefaultTokenGrace is how long after its expiry a token is still good, when Options do not say.
	DefaultTokenGrace = 5 * time.Minute

	connectLimit = 60 * time.Second // from the network connection to the CONNECT packet
)

var (
	// ErrClosed is returned by calls that a closed hub cannot serve any more.
	ErrClosed = errors.New("testbroker: hub is closed")

	// ErrDropped is the cause of a connection's end by [Hub.Drop].
	ErrDropped = errors.New("dropped by the test")
	// ErrReset is the cause of a connection's end by [Hub.Reset].
	ErrReset = errors.New("cut by a reset of the hub")
	// ErrReplaced is the cause of a connection's end by a newer one of the same identity.
	ErrReplaced = errors.New("replaced by a newer connection of the same identity")
	// ErrDisabled is why a disabled device is refused, and the cause of the end of its connection.
	ErrDisabled = errors.New("device is disabled")
	// ErrRemoved is the cause of a connection's end by [Hub.RemoveDevice].
	ErrRemoved = errors.New("device was removed")
	// ErrTokenExpired is the cause of a connection's end with its token.
	ErrTokenExpired = errors.New("token of the connection expired")
	// ErrParted is the cause of a connection's end by a DISCONNECT of the client.
	ErrParted = errors.New("client disconnected")
)

// Options are the settings of a hub. The zero value of each field stands for its default.
type Options struct {
	// HostName is the hub's name in user names, tokens and its certificate. Default:
	// [DefaultHostName].
	HostName string
	// Now is the hub's clock: it judges tokens, stamps messages and events and dates the certificate.
	// It is called from any goroutine. Default: [time.Now]. Delays and durations run by the real
	// clock, or the bubble's.
	Now func() time.Time
	// TokenGrace is how long after its expiry a token is still good. Default: [DefaultTokenGrace];
	// negative: no grace.
	TokenGrace time.Duration
	// ConnectionGrace is how long after the expiry of its token a connection is cut. Default: that of
	// tokens; negative: no grace.
	ConnectionGrace time.Duration
	// C2D is about the queues of commands.
	C2D C2DOptions
	// FaultMessages says what the hub does with messages by which a device asks for a fault. Default:
	// it obeys.
	FaultMessages FaultMessages
	// AMQP is about connections that speak it.
	AMQP AMQPOptions
	// HTTP is about connections that speak it.
	HTTP HTTPOptions
	// Uploads is about files that devices upload.
	Uploads UploadOptions
	// WebSocketFrame, unless zero, is how many bytes the hub puts into one frame at most, regardless
	// of where packets begin. Default: what it writes at a time is one frame.
	WebSocketFrame int
	// Keep, if positive, is how many entries of each log the hub keeps, the newest, so that it can run
	// for as long as one likes: messages, conflicts, calls of methods, their answers, faults asked for
	// by message, uploads with their files, and for each device or module its commands and its
	// requests about the twin. The oldest are forgotten, and so are the commands of devices removed
	// that many removals ago. Waits, counts and sequence numbers go on as if all were kept, and what
	// is under way goes on, except that an upload is over when it is forgotten. Memory for up to as
	// many again is freed a while later. Default: all are kept until [Hub.Reset].
	Keep int
	// Seed, unless zero, makes keys, the certificate authority and the draws of faults repeat from run
	// to run: clients that trust a hub trust the next one of the same seed. Who knows the seed has the
	// keys.
	Seed uint64
	// OnEvent is told of all that happens: see [EventKind]. It is called from the goroutines of
	// connections and of callers of the hub, several at once, and must not wait. It may call methods
	// that do not wait. Default: nobody is told.
	OnEvent func(Event)
}

// Hub is an IoT hub in memory. Make it with [New].
type Hub struct {
	host     string
	now      func() time.Time
	grace    time.Duration // of tokens
	life     time.Duration // of connections, beyond their token's
	seed     uint64
	keep     int
	c2d      C2DOptions
	amqp     AMQPOptions
	http     HTTPOptions
	obedient FaultMessages
	wsFrame  int
	onEvent  func(Event)

	fronts  map[Protocol]front
	done    chan struct{} // closed when Close begins
	stopped chan struct{} // closed when Close is through
	// every goroutine of the hub; grows only under mu while closed is false, or from a goroutine in it
	wg      sync.WaitGroup
	changed notifier
	log     telemetryLog
	faults  faults
	certs   certificates
	uploads uploads
	calls   methodCalls

	tracked atomic.Uint64 // errors that have a tracking id

	mu          sync.Mutex // guards what follows, never held over a wait
	closed      bool
	resetting   chan struct{} // closed when the Reset under way is through; nil = there is none
	registry    map[identity]*registration
	entries     int // registered so far
	removed     history[identity]
	policies    map[string]policy
	generations map[string]int // how many pairs of keys each owner was given
	listeners   []net.Listener
	conns       map[*conn]struct{} // every connection that was accepted and has not ended
	accepted    uint64             // connections so far
	queues      map[identity]*c2dQueue
	cas         *x509.CertPool // of devices
	standing    map[identity]standingOrder
	orders      history[*FaultMessage]
	twinOf      map[identity]*twin // those that were looked at
}

// newHub makes a hub without devices, listeners and fronts. Nil options mean all defaults.
func newHub(o *Options) (*Hub, error) {
	if o == nil {
		o = &Options{}
	}
	h := &Hub{
		host:        cmp.Or(o.HostName, DefaultHostName),
		now:         o.Now,
		grace:       max(cmp.Or(o.TokenGrace, DefaultTokenGrace), 0),
		life:        max(cmp.Or(o.ConnectionGrace, o.TokenGrace, DefaultTokenGrace), 0),
		seed:        o.Seed,
		keep:        max(o.Keep, 0),
		c2d:         o.C2D.withDefaults(),
		amqp:        o.AMQP.withDefaults(),
		http:        o.HTTP.withDefaults(),
		obedient:    o.FaultMessages,
		wsFrame:     o.WebSocketFrame,
		onEvent:     o.OnEvent,
		done:        make(chan struct{}),
		stopped:     make(chan struct{}),
		registry:    make(map[identity]*registration),
		policies:    make(map[string]policy),
		generations: make(map[string]int),
		conns:       make(map[*conn]struct{}),
		queues:      make(map[identity]*c2dQueue),
		cas:         x509.NewCertPool(),
		standing:    make(map[identity]standingOrder),
		twinOf:      make(map[identity]*twin),
	}
	h.calls.named, h.calls.open = make(map[callName]*methodCall), make(map[*methodCall]struct{})
	if err := checkHost(h.host); err != nil {
		return nil, fmt.Errorf("testbroker: Options.HostName: %w", err)
	}
	if h.now == nil {
		h.now = time.Now
	}
	h.log.init(h.keep)
	h.calls.log.keep, h.calls.answers.keep = h.keep, h.keep
	h.orders.keep, h.removed.keep = h.keep, h.keep
	h.uploads.init(o.Uploads, h.keep)
	h.faults.init(o.Seed)

	return h, nil
}

// setFronts gives the hub the fronts that speak each protocol, before the first connection.
func (h *Hub) setFronts(all map[Protocol]front) { h.fronts = all }

// HostName returns the hub's name.
func (h *Hub) HostName() string { return h.host }

// Close cuts all connections, stops all listeners and waits for every goroutine of the hub. The log
// can still be read. A second Close waits for the first.
func (h *Hub) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		<-h.stopped
		return nil
	}
	h.closed = true
	close(h.done)
	listeners, open := h.listeners, h.connsLocked("")
	h.mu.Unlock()

	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	for _, c := range open {
		c.cutFor(ErrClosed) // the broker's own way to end a connection waits for it to read
	}
	h.wg.Wait()
	for _, q := range h.queuesOf("") {
		q.stop()
	}
	for _, f := range h.fronts {
		errs = append(errs, f.close())
	}
	close(h.stopped)
	return errors.Join(errs...)
}

func (h *Hub) dial(ctx context.Context, network, addr string, at port) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: memconn.Addr(addr), Err: err}
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
	if in := h.faults.inForce(Absent, identity{}); in != nil {
		h.happened(in, nil)
		return fail(refused)
	}
	client, raw := memconn.Pair("mem:"+h.nextPort(), addr)
	// Both ends may write as much as they like. A hub that waited here for a client to read would hold
	// locks of the broker over that wait, and time in a bubble would stand still.
	raw.SetBuffer(0)
	if !h.serve(raw, at) {
		return fail(refused)
	}
	return client, nil
}

func (h *Hub) nextPort() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprint(h.accepted + 1)
}

// serve runs a connection in its own goroutine; false when the hub is closed, or being reset.
func (h *Hub) serve(raw net.Conn, at port) bool {
	sock, real := raw.(*net.TCPConn)
	var queue *socket
	if real {
		queue = newSocket(sock)
		raw = queue
	}
	c := &conn{stream: raw, raw: raw, under: raw, port: at, hub: h, closed: make(chan struct{}), done: make(chan struct{})}
	h.mu.Lock()
	if h.closed || h.resetting != nil {
		h.mu.Unlock()
		abort(raw)
		return false
	}
	h.accepted++
	c.number = h.accepted
	h.conns[c] = struct{}{}
	h.wg.Add(1)
	if real {
		h.wg.Go(queue.send)
	}
	h.mu.Unlock()
	go h.run(c)
	return true
}

// run is the goroutine of a connection: it reads, and ends with the connection. Close waits for it.
func (h *Hub) run(c *conn) {
	defer h.wg.Done()
	defer close(c.done)
	c.SetDeadline(time.Now().Add(connectLimit))
	if in := h.faults.inForce(HalfOpen, identity{}); in != nil {
		if c.silence() { // no handshake either
			h.happened(in, c)
		}
	}
	h.finish(c, h.speak(c))
}

// speak hands a connection to the front of its port, and to the next one when the client switches
// the protocol.
func (h *Hub) speak(c *conn) error {
	under, offer := h.fronts[c.port.speaks].below(c)
	c.under = under
	if c.port.secure && c.mode.Load() == open {
		if err := h.secure(c, offer); err != nil {
			return err
		}
	}
	next, err := h.fronts[c.port.speaks].serve(c)
	if err == nil && next != 0 {
		_, err = h.fronts[next].serve(c)
	}
	return err
}

// enter adds the caller, a timer, to the goroutines that Close waits for; false when the hub is
// closed.
func (h *Hub) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.wg.Add(1)
	return true
}

// later does something after a delay, in a goroutine of the hub, unless the hub or what done
// belongs to is closed before. Any goroutine may call it.
func (h *Hub) later(d time.Duration, done <-chan struct{}, do func()) {
	due := time.NewTimer(d)
	if !h.enter() {
		due.Stop()
		return
	}
	go func() {
		defer h.wg.Done()
		defer due.Stop()
		select {
		case <-due.C:
			do()
		case <-done:
		case <-h.done:
		}
	}()
}

// finish takes a connection out of all tables and tells of its end.
func (h *Hub) finish(c *conn, err error) {
	c.Close()
	h.detach(c)
	if c.pending != nil {
		h.faults.release(c.pending)
	}
	h.mu.Lock()
	delete(h.conns, c)
	if c.peer != nil {
		c.peer.leaveLocked()
	}
	live, closed, peer := c.live, h.closed, c.peer
	c.live = false
	h.mu.Unlock()

	cause := c.causeOr(err)
	if cause == nil {
		cause = ErrParted
	}
	if peer != nil {
		peer.finish(cause, live, closed)
	} else {
		h.event(Event{Kind: Refused, Err: cause}, c)
	}
	h.changed.wake()
}

// connsLocked returns the connections that a selector means, oldest first.
func (h *Hub) connsLocked(selector string) []*conn {
	var all []*conn
	for c := range h.conns {
		if c.matchesLocked(selector) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *conn) int { return cmp.Compare(a.number, b.number) })
	return all
}

func (h *Hub) connsOf(selector string) []*conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.connsLocked(selector)
}

// Connections returns how many connections are established, that is, were accepted by CONNACK, or
// over AMQP opened, and have not ended. The device is a device id, which includes its modules, or
// "deviceID/moduleID", or empty for all. A connection over AMQP counts for each device that was
// authenticated on it, and so does one over HTTP from the first such request on.
func (h *Hub) Connections(device string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for c := range h.conns {
		if c.live && c.matchesLocked(device) {
			n++
		}
	}
	return n
}

// Drop cuts, by RST, the connections of a device, named as in [Hub.Connections]; empty means all,
// also those without a CONNECT. It returns how many it cut.
func (h *Hub) Drop(device string) int {
	open := h.connsOf(device)
	for _, c := range open {
		c.cutFor(ErrDropped)
	}
	return len(open)
}
