package hub

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

	ConnectLimit = 60 * time.Second // from the network connection to the CONNECT packet
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
	// C2D is about the queues of C2D messages.
	C2D C2DOptions
	// FaultMessages says what the hub does with messages by which a device asks for a fault. Default:
	// it obeys.
	FaultMessages FaultMessages
	// AMQP holds the settings of its connections.
	AMQP AMQPOptions
	// HTTP holds the settings of its connections.
	HTTP HTTPOptions
	// Uploads is about files that devices upload.
	Uploads UploadOptions
	// WebSocketFrame, unless zero, is how many bytes the hub puts into one frame at most, regardless
	// of where packets begin. Default: what it writes at a time is one frame.
	WebSocketFrame int
	// Keep, if positive, is how many entries of each log the hub keeps, the newest, so that it can run
	// for as long as one likes: messages, conflicts, calls of methods, their answers, faults asked for
	// by message, uploads with their files, and for each device or module its C2D messages and its
	// requests about the twin. The oldest are forgotten, and so are the C2D messages of devices
	// removed that many removals ago. Waits, counts and sequence numbers go on as if all were kept,
	// and what is under way goes on, except that an upload is over when it is forgotten. Memory for up
	// to as many again is freed a while later. Default: all are kept until [Hub.Reset].
	Keep int
	// Seed, unless zero, makes keys, the certificate authority and the draws of faults repeat from run
	// to run: clients that trust a hub trust the next one of the same seed. Who knows the seed has the
	// keys.
	Seed uint64
	// OnEvent is called with every event: see [EventKind]. It is called from the goroutines of
	// connections and of callers of the hub, several at once, and must not wait. It may call methods
	// that do not wait. Default: nobody is told.
	OnEvent func(Event)
}

// Hub is an IoT hub in memory. Make it with [New].
type Hub struct {
	Host     string
	Now      func() time.Time
	grace    time.Duration // of tokens
	Life     time.Duration // of connections, beyond their token's
	Seed     uint64
	keep     int
	C2d      C2DOptions
	AMQP     AMQPOptions
	HTTP     HTTPOptions
	Obedient FaultMessages
	WsFrame  int
	onEvent  func(Event)

	Fronts  map[Protocol]Front
	Done    chan struct{} // closed when Close begins
	stopped chan struct{} // closed when Close is through
	// every goroutine of the hub; grows only under mu while closed is false, or from a goroutine in it
	Wg          sync.WaitGroup
	Changed     notifier
	log         telemetryLog
	Faults      Faults
	certs       certificates
	UploadTable UploadTable
	calls       methodCalls

	tracked atomic.Uint64 // errors that have a tracking id

	Mu          sync.Mutex // guards what follows, never held over a wait
	closed      bool
	resetting   chan struct{} // closed when the Reset under way is through; nil = there is none
	Registry    map[Identity]*Registration
	entries     int // registered so far
	removed     history[Identity]
	policies    map[string]policy
	generations map[string]int // how many pairs of keys each owner was given
	listeners   []net.Listener
	Conns       map[*Conn]struct{} // every connection that was accepted and has not ended
	accepted    uint64             // connections so far
	Queues      map[Identity]*Queue
	cas         *x509.CertPool // of devices
	Standing    map[Identity]StandingFault
	orders      history[*FaultMessage]
	twinOf      map[Identity]*TwinState // those that were looked at
}

// New makes a hub without devices, listeners and fronts. Nil options mean all defaults.
func New(o *Options) (*Hub, error) {
	if o == nil {
		o = &Options{}
	}
	h := &Hub{
		Host:        cmp.Or(o.HostName, DefaultHostName),
		Now:         o.Now,
		grace:       max(cmp.Or(o.TokenGrace, DefaultTokenGrace), 0),
		Life:        max(cmp.Or(o.ConnectionGrace, o.TokenGrace, DefaultTokenGrace), 0),
		Seed:        o.Seed,
		keep:        max(o.Keep, 0),
		C2d:         o.C2D.withDefaults(),
		AMQP:        o.AMQP.withDefaults(),
		HTTP:        o.HTTP.withDefaults(),
		Obedient:    o.FaultMessages,
		WsFrame:     o.WebSocketFrame,
		onEvent:     o.OnEvent,
		Done:        make(chan struct{}),
		stopped:     make(chan struct{}),
		Registry:    make(map[Identity]*Registration),
		policies:    make(map[string]policy),
		generations: make(map[string]int),
		Conns:       make(map[*Conn]struct{}),
		Queues:      make(map[Identity]*Queue),
		cas:         x509.NewCertPool(),
		Standing:    make(map[Identity]StandingFault),
		twinOf:      make(map[Identity]*TwinState),
	}
	h.calls.named, h.calls.open = make(map[callName]*methodCall), make(map[*methodCall]struct{})
	if err := checkHost(h.Host); err != nil {
		return nil, fmt.Errorf("testbroker: Options.HostName: %w", err)
	}
	if h.Now == nil {
		h.Now = time.Now
	}
	h.log.init(h.keep)
	h.calls.log.keep, h.calls.answers.keep = h.keep, h.keep
	h.orders.keep, h.removed.keep = h.keep, h.keep
	h.UploadTable.init(o.Uploads, h.keep)
	h.Faults.init(o.Seed)

	return h, nil
}

// SetFronts gives the hub the fronts that speak each protocol, before the first connection.
func (h *Hub) SetFronts(all map[Protocol]Front) { h.Fronts = all }

// HostName is testbroker.Hub.HostName.
func (h *Hub) HostName() string { return h.Host }

// Close is testbroker.Hub.Close.
func (h *Hub) Close() error {
	h.Mu.Lock()
	if h.closed {
		h.Mu.Unlock()
		<-h.stopped
		return nil
	}
	h.closed = true
	close(h.Done)
	listeners, open := h.listeners, h.ConnsLocked("")
	h.Mu.Unlock()

	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	for _, c := range open {
		c.CutFor(ErrClosed) // the broker's own way to end a connection waits for it to read
	}
	h.Wg.Wait()
	for _, q := range h.queuesOf("") {
		q.stop()
	}
	for _, f := range h.Fronts {
		errs = append(errs, f.Shutdown())
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
	if in := h.Faults.InForce(Absent, Identity{}); in != nil {
		h.Happened(in, nil)
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
	h.Mu.Lock()
	defer h.Mu.Unlock()
	return fmt.Sprint(h.accepted + 1)
}

// serve runs a connection in its own goroutine; false when the hub is closed, or being reset.
func (h *Hub) serve(raw net.Conn, at port) bool {
	sock, real := raw.(*net.TCPConn)
	var queue *Socket
	if real {
		queue = newSocket(sock)
		raw = queue
	}
	c := &Conn{Stream: raw, Raw: raw, Under: raw, port: at, Hub: h, Closed: make(chan struct{}), Done: make(chan struct{})}
	h.Mu.Lock()
	if h.closed || h.resetting != nil {
		h.Mu.Unlock()
		abort(raw)
		return false
	}
	h.accepted++
	c.Number = h.accepted
	h.Conns[c] = struct{}{}
	h.Wg.Add(1)
	if real {
		h.Wg.Go(queue.send)
	}
	h.Mu.Unlock()
	go h.run(c)
	return true
}

// run is the goroutine of a connection: it reads, and ends with the connection. Close waits for it.
func (h *Hub) run(c *Conn) {
	defer h.Wg.Done()
	defer close(c.Done)
	c.SetDeadline(time.Now().Add(ConnectLimit))
	if in := h.Faults.InForce(HalfOpen, Identity{}); in != nil {
		if c.Silence() { // no handshake either
			h.Happened(in, c)
		}
	}
	h.finish(c, h.speak(c))
}

// speak hands a connection to the front of its port, and to the next one when the client switches
// the protocol.
func (h *Hub) speak(c *Conn) error {
	under, offer := h.Fronts[c.port.speaks].Below(c)
	c.Under = under
	if c.port.secure && c.Mode.Load() == Open {
		if err := h.secure(c, offer); err != nil {
			return err
		}
	}
	next, err := h.Fronts[c.port.speaks].Serve(c)
	if err == nil && next != 0 {
		_, err = h.Fronts[next].Serve(c)
	}
	return err
}

// Enter adds the caller, a timer, to the goroutines that Close waits for; false when the hub is
// closed.
func (h *Hub) Enter() bool {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	if h.closed {
		return false
	}
	h.Wg.Add(1)
	return true
}

// later does something after a delay, in a goroutine of the hub, unless the hub or what done
// belongs to is closed before. Any goroutine may call it.
func (h *Hub) later(d time.Duration, done <-chan struct{}, do func()) {
	due := time.NewTimer(d)
	if !h.Enter() {
		due.Stop()
		return
	}
	go func() {
		defer h.Wg.Done()
		defer due.Stop()
		select {
		case <-due.C:
			do()
		case <-done:
		case <-h.Done:
		}
	}()
}

// finish takes a connection out of all tables and tells of its end.
func (h *Hub) finish(c *Conn, err error) {
	c.Close()
	h.detach(c)
	if c.pending != nil {
		h.Faults.Release(c.pending)
	}
	h.Mu.Lock()
	delete(h.Conns, c)
	if c.Peer != nil {
		c.Peer.LeaveLocked()
	}
	live, closed, peer := c.Live, h.closed, c.Peer
	c.Live = false
	h.Mu.Unlock()

	cause := c.causeOr(err)
	if cause == nil {
		cause = ErrParted
	}
	if peer != nil {
		peer.Finish(cause, live, closed)
	} else {
		h.Event(Event{Kind: Refused, Err: cause}, c)
	}
	h.Changed.Wake()
}

// ConnsLocked returns the connections that a selector means, oldest first.
func (h *Hub) ConnsLocked(selector string) []*Conn {
	var all []*Conn
	for c := range h.Conns {
		if c.matchesLocked(selector) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *Conn) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

func (h *Hub) ConnsOf(selector string) []*Conn {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	return h.ConnsLocked(selector)
}

// Connections is testbroker.Hub.Connections.
func (h *Hub) Connections(device string) int {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	n := 0
	for c := range h.Conns {
		if c.Live && c.matchesLocked(device) {
			n++
		}
	}
	return n
}

// Drop is testbroker.Hub.Drop.
func (h *Hub) Drop(device string) int {
	open := h.ConnsOf(device)
	for _, c := range open {
		c.CutFor(ErrDropped)
	}
	return len(open)
}
