package testbroker

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// AMQPOptions are the settings of connections over AMQP. The zero value of each field stands for its default.
type AMQPOptions struct {
	// MaxFrameSize is the largest frame that the hub takes, 512 at least. Default: 65536.
	MaxFrameSize uint32
	// MaxMessageSize is the largest encoded message, or batch, that a telemetry link takes: the link is detached for one
	// that is larger. What a message may have by the hub's rules, [MaxMessage], is less. Default: 1 MiB.
	MaxMessageSize uint64
	// ChannelMax and HandleMax are the highest numbers of sessions of a connection and of links of a session. Defaults:
	// 8191 and 255.
	ChannelMax uint16
	HandleMax  uint32
	// SessionWindow is how many transfer frames a client may send ahead of the hub in one session. Default: 2048.
	SessionWindow uint32
	// Credit is for how many messages the hub gives a link credit; it renews it at half. Default: 500.
	Credit uint32
	// IdleTimeout is how long a client may be silent before the hub closes its connection. Half of it is announced to the
	// client. Default: 8 minutes; negative: no limit.
	IdleTimeout time.Duration
	// MaxTokens is how many tokens one connection may hold. Default: 2000.
	MaxTokens int
}

func (o AMQPOptions) withDefaults() AMQPOptions {
	return AMQPOptions{
		MaxFrameSize:   max(cmp.Or(o.MaxFrameSize, 1<<16), wire.MinMaxFrameSize),
		MaxMessageSize: cmp.Or(o.MaxMessageSize, 1<<20),
		ChannelMax:     cmp.Or(o.ChannelMax, 8191),
		HandleMax:      cmp.Or(o.HandleMax, 255),
		SessionWindow:  cmp.Or(o.SessionWindow, 2048),
		Credit:         cmp.Or(o.Credit, 500),
		IdleTimeout:    max(cmp.Or(o.IdleTimeout, 8*time.Minute), 0),
		MaxTokens:      cmp.Or(max(o.MaxTokens, 0), 2000),
	}
}

// AMQPError is an error as AMQP has them, for example what a fault rejects a message with.
type AMQPError struct{ Condition, Description string }

// Error returns the condition and the description.
func (e AMQPError) Error() string {
	return (&wire.Error{Condition: wire.Symbol(e.Condition), Description: e.Description}).Error()
}

func (e AMQPError) wire() *wire.Error {
	if e == (AMQPError{}) {
		return nil
	}
	return &wire.Error{Condition: wire.Symbol(e.Condition), Description: e.Description}
}

// DialAMQP is like [Hub.Dial], but AMQP 1.0 is spoken.
func (h *Hub) DialAMQP(ctx context.Context, network, addr string) (net.Conn, error) {
	return h.dial(ctx, network, addr, port{amqp: true})
}

// DialAMQPTLSPort is like [Hub.DialAMQP] with TLS below: see [Hub.DialTLSPort].
func (h *Hub) DialAMQPTLSPort(ctx context.Context, network, addr string) (net.Conn, error) {
	return h.dial(ctx, network, addr, port{amqp: true, secure: true})
}

// DialAMQPWS is like [Hub.DialWS], but the only subprotocol is "AMQPWSB10", in any letter case.
func (h *Hub) DialAMQPWS(ctx context.Context, network, addr string) (net.Conn, error) {
	return h.dial(ctx, network, addr, port{amqp: true, web: true})
}

// DialAMQPWSPort is like [Hub.DialAMQPWS] with TLS below.
func (h *Hub) DialAMQPWSPort(ctx context.Context, network, addr string) (net.Conn, error) {
	return h.dial(ctx, network, addr, port{amqp: true, secure: true, web: true})
}

// ListenAMQP opens a port on which the hub speaks AMQP over TLS, as the service does on 5671. See [Hub.ListenTLS].
func (h *Hub) ListenAMQP(addr string) (net.Addr, error) {
	return h.listen(addr, port{amqp: true, secure: true})
}

// ListenAMQPTCP is like [Hub.ListenAMQP] without TLS. The service has no such port.
func (h *Hub) ListenAMQPTCP(addr string) (net.Addr, error) { return h.listen(addr, port{amqp: true}) }

// ListenAMQPWS opens a port on which the hub speaks AMQP over WebSocket over TLS. A port of [Hub.ListenWS] does too, for
// clients that ask for it.
func (h *Hub) ListenAMQPWS(addr string) (net.Addr, error) {
	return h.listen(addr, port{amqp: true, secure: true, web: true})
}

// An amqpConn is a connection over AMQP as the hub sees it. Its methods as a handler run in the connection's goroutine.
type amqpConn struct {
	hub    *Hub
	c      *conn
	engine *amqp.Conn

	// Guarded by Hub.mu.
	who    map[identity]struct{} // those that were authenticated, by whatever way
	grants map[identity]*grant   // what tokens allow; that of the empty identity is for all devices
	links  map[*amqpLink]struct{}
	pairs  map[pairKey]*amqpPair
	told   bool // an event told of the connection
	ended  bool
}

// An amqpLink is a link over AMQP as the hub sees it.
type amqpLink struct {
	*amqp.Link
	conn *amqpConn
	kind LinkKind
	id   identity  // empty for those of $cbs
	pair *amqpPair // of links for twins and methods
	acks ackQueue  // dispositions that wait for their time

	to   *amqpReceiver // of links for commands
	post outbox
}

var _ amqp.Handler = (*amqpConn)(nil)

// serveAMQP is the life of a connection from the first byte of AMQP on.
func (h *Hub) serveAMQP(c *conn) error {
	a := &amqpConn{
		hub: h, c: c, who: make(map[identity]struct{}), grants: make(map[identity]*grant),
		links: make(map[*amqpLink]struct{}), pairs: make(map[pairKey]*amqpPair),
	}
	idle := h.amqp.IdleTimeout
	a.engine = amqp.NewConn(c, amqp.Config{
		ContainerID: fmt.Sprintf("%s-%d", h.host, c.number), MaxFrameSize: h.amqp.MaxFrameSize,
		ChannelMax: h.amqp.ChannelMax, HandleMax: h.amqp.HandleMax, SessionWindow: h.amqp.SessionWindow, IdleTimeout: idle,
	}, a)
	h.mu.Lock()
	c.amqp = a
	h.mu.Unlock()
	err := a.engine.Serve()
	if err == nil {
		err = ErrParted
	}
	c.farewell(err)
	c.drain()
	return err
}

// finish ends what is left when the connection has ended.
func (a *amqpConn) finish(cause error) {
	h := a.hub
	h.mu.Lock()
	a.ended = true
	for _, g := range a.grants {
		g.timer.Stop()
	}
	clear(a.grants)
	who := a.whoLocked("")
	clear(a.who)
	told := a.told
	h.mu.Unlock()
	for _, id := range who {
		h.event(Event{Kind: Disconnected, DeviceID: id.device, ModuleID: id.module, Err: cause}, a.c)
	}
	if len(who) == 0 && !told {
		h.event(Event{Kind: Refused, Err: cause}, a.c)
	}
}

// whoLocked returns the identities that a selector means, by their names.
func (a *amqpConn) whoLocked(selector string) []identity {
	var all []identity
	for id := range a.who {
		if id.matches(selector) {
			all = append(all, id)
		}
	}
	slices.SortFunc(all, func(x, y identity) int { return strings.Compare(x.String(), y.String()) })
	return all
}

// close closes the connection with an error, for a reason.
func (a *amqpConn) close(e *wire.Error, cause error) {
	a.engine.Close(e)
	a.c.farewell(cause)
}

// Mechanisms returns all that the service has.
func (a *amqpConn) Mechanisms() []wire.Symbol {
	return []wire.Symbol{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"}
}

// Authenticate judges a choice of mechanism.
func (a *amqpConn) Authenticate(mechanism wire.Symbol, response []byte) uint8 {
	h := a.hub
	if in := h.faults.take(RefuseSASL, identity{}); in != nil {
		h.happened(in, a.c)
		a.refused(identity{}, faultError(RefuseSASL))
		return in.fault.Code
	}
	var err error
	switch mechanism {
	case "PLAIN":
		err = a.plain(string(response))
	case "EXTERNAL":
		err = a.external(string(response))
	}
	if err != nil {
		a.c.blame(err)
		a.refused(identity{}, err)
		return wire.SASLAuth
	}
	return wire.SASLOK
}

// plain reads [authzid] NUL authcid NUL password, with "device@sas.hub" or "policy@sas.root.hub" for authcid.
func (a *amqpConn) plain(response string) error {
	part := strings.Split(response, "\x00")
	if len(part) != 3 || part[0] != "" && part[0] != part[1] {
		return errors.New("SASL PLAIN: not a user and a password")
	}
	h := a.hub
	name, _, _ := strings.Cut(h.host, ".")
	tok, err := parseToken(part[2])
	if err != nil {
		return fmt.Errorf("SASL PLAIN: %w", err)
	}
	at := strings.LastIndex(part[1], "@sas.")
	switch {
	case at < 0:
		return errors.New("SASL PLAIN: user name without @sas")
	case strings.EqualFold(part[1][at:], "@sas.root."+name):
		if tok.policy != part[1][:at] {
			return fmt.Errorf("SASL PLAIN: token is not of the policy %q", part[1][:at])
		}
		h.mu.Lock()
		err = h.authorizePolicyLocked(tok)
		h.mu.Unlock()
		if err != nil {
			return err
		}
		return a.grant(identity{}, tok, true)
	case !strings.EqualFold(part[1][at:], "@sas."+name):
		return fmt.Errorf("SASL PLAIN: user name %q is not of this hub", part[1])
	}
	id := splitIdentity(part[1][:at])
	h.mu.Lock()
	err = h.authorizeLocked(userName{host: h.host, id: id}, tok)
	if err == nil {
		a.c.id = id
	}
	h.mu.Unlock()
	if err != nil {
		return err
	}
	return a.grant(id, tok, true)
}

// external finds out whether the client's certificate is that of any device, or of the one that it names. For what it
// may be used is looked at when a link is attached.
func (a *amqpConn) external(response string) error {
	chain := a.chain()
	if len(chain) == 0 {
		return errors.New("SASL EXTERNAL: no certificate")
	}
	h := a.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	err := errors.New("SASL EXTERNAL: certificate is of no device")
	for id, entry := range h.registry {
		if entry.x509 && (response == "" || response == id.String()) && h.certifiedLocked(userName{host: h.host, id: id}, chain) == nil {
			return nil
		}
	}
	return err
}

// chain returns the client's certificates.
func (a *amqpConn) chain() []*x509.Certificate {
	if a.c.tls == nil {
		return nil
	}
	return a.c.tls.ConnectionState().PeerCertificates
}

// Open judges a connection.
func (a *amqpConn) Open(o *wire.Open) error {
	h, c := a.hub, a.c
	id := c.id
	if err := a.gone(id); err != nil {
		return err
	}
	if in := h.faults.take(DropConnect, id); in != nil {
		h.happened(in, c)
		c.closeFor(faultError(DropConnect))
		return faultError(DropConnect)
	}
	if in := h.faults.take(NoConnack, id); in != nil {
		c.blame(faultError(NoConnack))
		c.silence()
		h.happened(in, c)
		c.drain()
		return faultError(NoConnack)
	}
	if in := h.faults.take(RefuseConnect, id); in != nil {
		h.happened(in, c)
		c.blame(faultError(RefuseConnect))
		return in.fault.wire()
	}
	if in := h.faults.take(SlowConnack, id); in != nil {
		h.happened(in, c)
		if !c.sleep(in.fault.Delay) {
			return faultError(SlowConnack)
		}
	}
	if !h.knows(o.Hostname) {
		return wire.Errorf("com.microsoft:iot-hub-not-found-error", "host name %q is not this hub", o.Hostname)
	}
	return nil
}

// gone lets the faults have their way that make the hub unreachable. An error ends the connection.
func (a *amqpConn) gone(id identity) error {
	h, c := a.hub, a.c
	if in := h.faults.inForce(Absent, id); in != nil {
		h.happenedTo(in, c, id)
		c.cutFor(faultError(Absent))
		return faultError(Absent)
	}
	if in := h.faults.inForce(HalfOpen, id); in != nil {
		if c.silence() {
			h.happenedTo(in, c, id)
		}
		c.drain()
		return faultError(HalfOpen)
	}
	return nil
}

// knows says whether a client may mean this hub by a host name: those of its certificate, with or without a port.
func (h *Hub) knows(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "" || strings.EqualFold(host, h.host) || slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host)
}

// Opened makes the connection one that counts.
func (a *amqpConn) Opened() error {
	h, c := a.hub, a.c
	c.SetDeadline(time.Time{})
	h.mu.Lock()
	c.live = true
	h.mu.Unlock()
	h.changed.wake()
	h.garbage(GarbageOnConnect, c)
	return nil
}

// Idle ends a connection whose client was silent for too long, unless the link is dead: then nobody would learn of it.
func (a *amqpConn) Idle() { a.c.farewell(amqp.ErrIdle) }

// Attach judges a link.
func (a *amqpConn) Attach(link *amqp.Link) error {
	l, err := a.classify(link)
	if err != nil {
		return err
	}
	link.Value = l
	if !l.kind.cbs() {
		if err := a.permit(l); err != nil {
			return err
		}
	}
	if err := a.prepare(l); err != nil {
		return err
	}
	return a.attachFaults(l)
}

// permit looks whether the client may attach the link.
func (a *amqpConn) permit(l *amqpLink) error {
	h := a.hub
	if err := a.gone(l.id); err != nil {
		return err
	}
	chain := a.chain()
	h.mu.Lock()
	_, err := h.knownLocked(userName{host: h.host, id: l.id})
	if err == nil && !a.grantedLocked(l.id) {
		if err = h.certifiedLocked(userName{host: h.host, id: l.id}, chain); err != nil {
			err = fmt.Errorf("no token for %s was put on this connection: %w", l.id.resource(), err)
		}
	}
	h.mu.Unlock()
	switch {
	case errors.Is(err, ErrNotFound):
		a.refused(l.id, err)
		return wire.Errorf(wire.NotFound, "404001 DeviceNotFound: %s", l.id)
	case err != nil:
		a.refused(l.id, err)
		return wire.Errorf(wire.UnauthorizedAccess, "401003 IotHubUnauthorized: %v", err)
	}
	if in := h.faults.inForce(Throttle, l.id); in != nil {
		h.happenedTo(in, a.c, l.id)
		return throttled()
	}
	a.admit(l.id)
	return nil
}

func throttled() *wire.Error {
	return wire.Errorf("com.microsoft:device-container-throttled", "429001 ThrottlingException")
}

// prepare sets what is answered to an attach.
func (a *amqpConn) prepare(l *amqpLink) error {
	if l.Receives() {
		l.Answer.MaxMessageSize = a.hub.amqp.MaxMessageSize
	}
	return nil
}

// Attached lets a link work.
func (a *amqpConn) Attached(link *amqp.Link) { a.start(link.Value.(*amqpLink)) }

// start is Attached for any goroutine.
func (a *amqpConn) start(l *amqpLink) {
	h := a.hub
	h.mu.Lock()
	if a.ended {
		h.mu.Unlock()
		return
	}
	a.links[l] = struct{}{}
	h.mu.Unlock()
	if l.Receives() {
		a.allow(l)
	}
	switch {
	case l.kind == LinkC2D:
		a.receive(l)
	case l.kind.paired():
		a.join(l)
	}
	a.idleFault(l)
	h.changed.wake()
}

// Detached takes a link out of all tables.
func (a *amqpConn) Detached(link *amqp.Link) {
	if l, ok := link.Value.(*amqpLink); ok {
		a.leave(l)
	}
}

// leave takes a link that has ended out of all tables. No lock is held.
func (a *amqpConn) leave(l *amqpLink) {
	h := a.hub
	h.mu.Lock()
	delete(a.links, l)
	h.mu.Unlock()
	if l.to != nil {
		a.unreceive(l)
	}
	if l.kind.paired() {
		a.part(l)
	}
	h.changed.wake()
}

// detach detaches a link.
func (l *amqpLink) detach(e *wire.Error, closed bool) {
	if l.Detach(e, closed) {
		l.conn.leave(l)
	}
}

// Credit sends what waits for it.
func (a *amqpConn) Credit(link *amqp.Link) {
	l := link.Value.(*amqpLink)
	if l.to != nil {
		l.to.q.kick()
		return
	}
	l.post.flush(l)
}

// Settled is told what a client says of a command. Replies go settled, or nobody cares.
func (a *amqpConn) Settled(link *amqp.Link, tag []byte, state wire.DeliveryState) wire.DeliveryState {
	l := link.Value.(*amqpLink)
	if l.to == nil {
		return state
	}
	return l.to.settle(string(tag), state)
}

// Message hands a message to what the link leads to.
func (a *amqpConn) Message(link *amqp.Link, d amqp.Delivery) error {
	l := link.Value.(*amqpLink)
	switch {
	case l.kind == LinkCBSSender:
		return a.putToken(l, d)
	case l.kind == LinkTelemetry:
		return a.telemetry(l, d)
	}
	m, err := readMessage(d)
	if err == nil {
		err = a.ask(l, m)
	}
	l.settle(d, err)
	return nil
}

// settle answers a message: accepted, or rejected if there is an error. One that was sent settled has no such answer:
// the link is detached.
func (l *amqpLink) settle(d amqp.Delivery, err *wire.Error) {
	switch {
	case err == nil && !d.Settled:
		l.Settle(d.ID, &wire.Accepted{})
	case err != nil && !d.Settled:
		l.Settle(d.ID, &wire.Rejected{Error: err})
	case err != nil:
		l.detach(err, true)
	}
}

// readMessage reads a message that is not a batch.
func readMessage(d amqp.Delivery) (*wire.Message, *wire.Error) {
	if d.Format != 0 {
		return nil, wire.Errorf(wire.NotImplemented, "message format 0x%x", d.Format)
	}
	m, err := wire.DecodeMessage(d.Payload)
	if err != nil {
		return nil, asWire(err)
	}
	return m, nil
}

func asWire(err error) *wire.Error {
	var e *wire.Error
	if errors.As(err, &e) {
		return e
	}
	return wire.Errorf(wire.InternalError, "%v", err)
}

// admit tells that a client may act for an identity from now on.
func (a *amqpConn) admit(id identity) {
	h := a.hub
	h.mu.Lock()
	_, again := a.who[id]
	if id == (identity{}) || again || a.ended {
		h.mu.Unlock()
		return
	}
	a.who[id] = struct{}{}
	a.told = true
	h.mu.Unlock()
	h.event(Event{Kind: Connected, DeviceID: id.device, ModuleID: id.module}, a.c)
	h.changed.wake()
}

// refused tells that a client was refused for an identity, or any.
func (a *amqpConn) refused(id identity, why error) {
	a.hub.mu.Lock()
	a.told = true
	a.hub.mu.Unlock()
	a.hub.event(Event{Kind: Refused, DeviceID: id.device, ModuleID: id.module, Err: why}, a.c)
}

// expel ends what the connection does for the identities that a selector means. A connection that is one of them by
// SASL is closed.
func (a *amqpConn) expel(selector string, cause error, condition wire.Symbol) {
	h := a.hub
	h.mu.Lock()
	own := a.c.id != (identity{}) && a.c.id.matches(selector)
	who := a.whoLocked(selector)
	for _, id := range who {
		delete(a.who, id)
		if g := a.grants[id]; g != nil {
			g.timer.Stop()
			delete(a.grants, id)
		}
	}
	links := a.linksLocked(selector, LinkAny)
	h.mu.Unlock()
	e := &wire.Error{Condition: condition, Description: cause.Error()}
	if own {
		a.close(e, cause)
		return
	}
	for _, l := range links {
		l.detach(e, true)
	}
	for _, id := range who {
		h.event(Event{Kind: Disconnected, DeviceID: id.device, ModuleID: id.module, Err: cause}, a.c)
	}
	h.changed.wake()
}
