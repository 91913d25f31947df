package hub

import (
	"cmp"
	"context"
	"crypto/tls"
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
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/authority"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

const (
	// DefaultHostName is the hub's name if Options.HostName is empty.
	DefaultHostName = "hub.example.test"

	defaultTokenGrace = 5 * time.Minute // for which an expired token is still accepted

	ConnectLimit = 60 * time.Second // from the accepted connection to the CONNECT packet
)

var (
	// ErrClosed is returned by calls on a closed hub.
	ErrClosed = errors.New("testbroker: hub is closed")

	// ErrDropped is the cause of a connection's end when [Hub.Drop] ended it.
	ErrDropped = errors.New("dropped by the test")
	// ErrReset is the cause of a connection's end when [Hub.Reset] ended it.
	ErrReset = errors.New("cut by a reset of the hub")
	// ErrReplaced is the cause of a connection's end when a newer one of the same identity replaced
	// it.
	ErrReplaced = errors.New("replaced by a newer connection of the same identity")
	// ErrDisabled is the cause of refusing a disabled device, and of ending its connection.
	ErrDisabled = errors.New("device is disabled")
	// ErrRemoved is the cause of a connection's end when [Hub.RemoveDevice] removed the device.
	ErrRemoved = errors.New("device was removed")
	// ErrTokenExpired is the cause of a connection's end when its token expired.
	ErrTokenExpired = errors.New("token of the connection expired")
	// ErrDisconnect is the cause of a connection's end when the client sent DISCONNECT.
	ErrDisconnect = errors.New("client disconnected")
)

// Options are those of testbroker.Options that concern the hub without its fronts.
type Options struct {
	HostName        string
	Now             func() time.Time
	TokenGrace      time.Duration
	ConnectionGrace time.Duration
	C2D             hubdata.C2DOptions
	Inputs          hubdata.C2DOptions
	Limits          hubdata.LimitOptions
	FaultMessages   fault.MessageMode
	AMQP            hubdata.AMQPOptions
	HTTP            hubdata.HTTPOptions
	Uploads         hubdata.UploadOptions
	Events          hubdata.EventOptions
	Certificates    hubdata.CertificateOptions
	WebSocketFrame  int
	Keep            int
	Seed            uint64
	OnEvent         func(event.Event)
	PlainTopic      func(m hubdata.C2D, id identity.Identity) (string, error) // nil: topics of the service
	Gateway         *hubdata.GatewayOptions                                   // nil: none
	Store           hubdata.Store                                             // nil: nothing survives
	Names           []string                                                  // of the certificate, besides HostName
	Authority       *tls.Certificate                                          // nil: the hub makes one
}

// Hub is an in-memory IoT hub. Make it with [New].
type Hub struct {
	Host             string
	Now              func() time.Time
	grace            time.Duration // after the expiry of tokens
	ConnectionGrace  time.Duration // of connections after their token's expiry
	Seed             uint64
	Keep             int
	C2D              hubdata.C2DOptions
	Inputs           hubdata.C2DOptions
	PlainTopic       func(m hubdata.C2D, id identity.Identity) (string, error) // of C2D messages at a plain broker
	Gateway          *Gateway                                                  // nil = none
	AMQP             hubdata.AMQPOptions
	HTTP             hubdata.HTTPOptions
	Certificates     hubdata.CertificateOptions
	FaultMessageMode fault.MessageMode
	WebSocketFrame   int
	onEvent          func(event.Event)

	Fronts  map[hubdata.Protocol]Front
	Done    chan struct{} // closed when Close begins
	stopped chan struct{} // closed when Close has finished
	// Every goroutine of the hub. It grows only under mu while closed is false, or from one of its
	// goroutines.
	Wg        sync.WaitGroup
	Changed   notifier
	log       telemetryLog
	Events    *EventLog
	Faults    faults.Faults
	Limits    faults.Limits
	Authority authority.Authority
	Files     files.Files
	calls     methodCalls
	issuer    issuer
	notices   [noticeKinds]Notices
	Records   keep.Saver

	plug Plug

	tracked  atomic.Uint64 // errors with a tracking id
	connects atomic.Uint64 // notices of connections

	mu          sync.Mutex // guards the fields below, never held while blocking
	closed      bool
	unsaved     bool          // the store has failed: no connections any more
	resetting   chan struct{} // closed when the running Reset has finished; nil = none runs
	registry    map[identity.Identity]*Registration
	modules     map[string]map[string]struct{} // names of the registered modules of each device that has some
	entries     int                            // registrations so far
	removed     removals
	policies    map[string]policy
	generations map[string]int // how many key pairs each owner received
	listeners   []net.Listener
	conns       map[*Conn]struct{}              // accepted connections that have not ended
	candidates  map[string]map[*Conn]struct{}   // by device id: those of conns that may act for it, or for its modules
	accepted    uint64                          // connections so far
	queues      map[string]map[queueName]*Queue // by device id
	cas         *x509.CertPool                  // trusted authorities of devices
	standing    map[identity.Identity]StandingFault
	orders      keep.History[*fault.Message]
	twinOf      map[identity.Identity]*TwinState // twins in use so far
}

// New makes a hub without devices, listeners and fronts. Nil options mean all defaults.
func New(o *Options) (*Hub, error) {
	if o == nil {
		o = &Options{}
	}
	h := &Hub{
		PlainTopic:       o.PlainTopic,
		Host:             cmp.Or(o.HostName, DefaultHostName),
		Now:              o.Now,
		grace:            max(cmp.Or(o.TokenGrace, defaultTokenGrace), 0),
		ConnectionGrace:  max(cmp.Or(o.ConnectionGrace, o.TokenGrace, defaultTokenGrace), 0),
		Seed:             o.Seed,
		Keep:             max(o.Keep, 0),
		C2D:              c2dDefaults(o.C2D),
		Inputs:           inputDefaults(o.Inputs),
		AMQP:             amqpDefaults(o.AMQP),
		HTTP:             httpDefaults(o.HTTP),
		Certificates:     o.Certificates,
		FaultMessageMode: o.FaultMessages,
		WebSocketFrame:   o.WebSocketFrame,
		onEvent:          o.OnEvent,
		plug:             noPlug{},
		Done:             make(chan struct{}),
		stopped:          make(chan struct{}),
		registry:         make(map[identity.Identity]*Registration),
		policies:         make(map[string]policy),
		generations:      make(map[string]int),
		conns:            make(map[*Conn]struct{}),
		modules:          make(map[string]map[string]struct{}),
		candidates:       make(map[string]map[*Conn]struct{}),
		queues:           make(map[string]map[queueName]*Queue),
		removed:          removals{times: make(map[identity.Identity]int)},
		cas:              x509.NewCertPool(),
		standing:         make(map[identity.Identity]StandingFault),
		twinOf:           make(map[identity.Identity]*TwinState),
	}
	h.calls.named, h.calls.open = make(map[callName]*methodCall), make(map[*methodCall]struct{})
	if err := identity.CheckHost(h.Host); err != nil {
		return nil, fmt.Errorf("testbroker: Options.HostName: %w", err)
	}
	if h.Now == nil {
		h.Now = time.Now
	}
	if err := h.Limits.Init(&o.Limits); err != nil {
		return nil, err
	}
	if err := checkAMQP(o.AMQP); err != nil {
		return nil, err
	}
	var err error
	if h.Gateway, err = newGateway(o.Gateway); err != nil {
		return nil, err
	}
	h.log.init(h.Keep)
	if err = h.initEvents(o.Events); err != nil {
		return nil, err
	}
	h.calls.log.Keep, h.calls.answers.Keep = h.Keep, h.Keep
	h.orders.Keep, h.removed.log.Keep = h.Keep, h.Keep
	h.issuer.log.Keep, h.issuer.of = h.Keep, make(map[identity.Identity]*issuing)
	if h.Certificates.Life == 0 {
		h.Certificates.Life = defaultCertificateLife
	}
	h.Faults.Init(o.Seed, func(e event.Event) { h.Event(e, nil) }, h.Until)
	for kind := range noticeKinds {
		q := &h.notices[kind]
		q.hub, q.kind, q.unsettled = h, kind, make(map[int]*Notice)
	}
	h.Records.Init(o.Store, h.storeFailed)
	h.addRegistryTables()
	h.addTwinTable()
	h.addQueueTables()
	h.addFeedbackTable()
	h.Files.Init(o.Uploads, h.Keep, h.Now, &h.Records, func(e event.Event) { h.Event(e, nil) })
	h.addLogTable()
	names := authority.Names{Host: h.Host, Front: h.FrontName(), More: o.Names}
	if err := h.Authority.Init(names, h.Seed, o.Authority, h.Now, &h.Records); err != nil {
		return nil, err
	}

	return h, nil
}

// SetFronts sets the front of each protocol. It is called before the first connection.
func (h *Hub) SetFronts(all map[hubdata.Protocol]Front) { h.Fronts = all }

// Close cuts all connections, stops all listeners and waits for every goroutine of the hub.
func (h *Hub) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		<-h.stopped
		return nil
	}
	h.closed = true
	close(h.Done)
	listeners, open := h.listeners, h.connsLocked("")
	h.mu.Unlock()
	h.plug.Stop(ErrClosed)

	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	for _, c := range open {
		c.CutFor(ErrClosed) // the broker's own Close waits for the connection's reads
	}
	h.Records.Release()
	h.Wg.Wait()
	for _, q := range h.queuesOf("", Boxes[:]...) {
		q.stop()
	}
	for i := range h.notices {
		h.notices[i].stop()
	}
	for _, f := range h.Fronts {
		errs = append(errs, f.Shutdown())
	}
	h.Records.End()
	close(h.stopped)
	return errors.Join(errs...)
}

// Dial connects to a port of the hub in memory.
func (h *Hub) Dial(ctx context.Context, network, addr string, at Stack) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: memconn.Addr(addr), Err: err}
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
	if in := h.Faults.InForce(fault.Absent, identity.Identity{}); in != nil {
		h.Happened(in, nil)
		return fail(refused)
	}
	client, raw := memconn.Pair("mem:"+h.nextPort(), addr)
	// Both buffers are unlimited. A hub that blocked here until a client reads would hold locks of the
	// broker meanwhile, and time in a synctest bubble would stop.
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

// serve runs a connection in its own goroutine; false when the hub is closed or being reset, its
// store has failed, or its gateway is stopped.
func (h *Hub) serve(raw net.Conn, at Stack) bool {
	sock, real := raw.(*net.TCPConn)
	var queue *Socket
	if real {
		queue = newSocket(sock)
		raw = queue
	}
	c := &Conn{Stream: raw, Raw: raw, Under: raw, stack: at, speaks: at.Protocol, Hub: h, Closed: make(chan struct{}),
		Done: make(chan struct{})}
	h.mu.Lock()
	if h.closed || h.resetting != nil || h.unsaved || h.downLocked() {
		h.mu.Unlock()
		abort(raw)
		return false
	}
	h.accepted++
	c.Number = h.accepted
	h.conns[c] = struct{}{}
	h.Wg.Add(1)
	if real {
		h.Wg.Go(queue.send)
	}
	h.mu.Unlock()
	go h.run(c)
	return true
}

// run is the goroutine of a connection. It reads, and ends with the connection. Close waits for it.
func (h *Hub) run(c *Conn) {
	defer h.Wg.Done()
	defer close(c.Done)
	c.SetDeadline(time.Now().Add(ConnectLimit))
	if in := h.Faults.InForce(fault.HalfOpen, identity.Identity{}); in != nil {
		if c.Silence() { // also during the handshake
			h.Happened(in, c)
		}
	}
	h.finish(c, h.speak(c))
}

// speak passes a connection to the front of its port, and to the next front when the client
// switches protocols.
func (h *Hub) speak(c *Conn) error {
	under, offer := h.Fronts[c.stack.Protocol].Below(c)
	c.Under = under
	if c.stack.TLS && c.Mode.Load() == Open {
		if err := h.secure(c, offer); err != nil {
			return err
		}
	}
	next, err := h.Fronts[c.stack.Protocol].Serve(c)
	if err == nil && next != 0 {
		h.mu.Lock()
		c.speaks = next
		h.mu.Unlock()
		_, err = h.Fronts[next].Serve(c)
	}
	return err
}

// Enter adds the caller, a timer, to the goroutines for which Close waits; false when the hub is
// closed.
func (h *Hub) Enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.Wg.Add(1)
	return true
}

// later calls do after a delay in a goroutine of the hub, unless the hub or done is closed before.
// Any goroutine may call it.
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

// finish removes a connection from all tables and reports its end.
func (h *Hub) finish(c *Conn, err error) {
	c.Close()
	h.detach(c)
	if c.pending != nil {
		h.Faults.Release(c.pending)
	}
	h.mu.Lock()
	c.leaveLocked()
	if c.peer != nil {
		c.peer.Leave()
	}
	live, closed, peer := c.live, h.closed, c.peer
	c.live = false
	h.mu.Unlock()

	cause := c.causeOr(err)
	if cause == nil {
		cause = ErrDisconnect
	}
	if peer != nil {
		peer.Finish(cause, live, closed)
	} else {
		h.Unserved(c, cause)
	}
	h.Changed.Wake()
}

// amongLocked returns the connections that a selector can match.
func (h *Hub) amongLocked(selector string) map[*Conn]struct{} {
	if selector == "" {
		return h.conns
	}
	return h.candidates[identity.SplitIdentity(selector).Device]
}

// connsLocked returns the connections that match a selector, oldest first.
func (h *Hub) connsLocked(selector string) []*Conn {
	var all []*Conn
	for c := range h.amongLocked(selector) {
		if c.matchesLocked(selector) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *Conn) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

func (h *Hub) ConnsOf(selector string) []*Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.connsLocked(selector)
}

// Connections returns how many connections are established: accepted by CONNACK, or opened over
// AMQP, and not ended.
func (h *Hub) Connections(device string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for c := range h.amongLocked(device) {
		if c.live && c.matchesLocked(device) {
			n++
		}
	}
	return n
}

// Drop cuts, with RST, the connections of a device, named as in [Hub.Connections]; empty means all,
// including those without a CONNECT.
func (h *Hub) Drop(device string) int {
	open := h.ConnsOf(device)
	for _, c := range open {
		c.CutFor(ErrDropped)
	}
	return len(open)
}
