package dpsfront

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// shortFrame is an AMQP frame shorter than the minimum.
var shortFrame = []byte{0, 0, 0, 4, 2, 0, 0, 0}

// An amqpFront serves AMQP 1.0.
type amqpFront struct{ front }

// Serve serves a connection from the first byte of AMQP to the end.
func (f *amqpFront) Serve(c *hub.Conn) (hubdata.Protocol, error) {
	h := c.Hub
	a := &conn{hub: h, dps: f.dps, c: c}
	a.engine = amqp.NewConn(c, amqp.Config{
		ContainerID: fmt.Sprintf("%s-%d", h.Host, c.Number), MaxFrameSize: h.AMQP.MaxFrameSize,
		ChannelMax: h.AMQP.ChannelMax, HandleMax: h.AMQP.HandleMax, SessionWindow: h.AMQP.SessionWindow,
		HandshakeFrame: 4096, IdleTimeout: h.AMQP.IdleTimeout, OmitNextIncomingID: h.AMQP.OmitNextIncomingID,
	}, a)
	c.SetPeer(a)
	err := a.engine.Serve()
	if err == nil {
		err = hub.ErrDisconnect
	}
	c.CloseGracefully(err)
	c.Drain()
	return 0, err
}

// A conn is a connection of one device. Its methods as an amqp.Handler run in the connection's
// goroutine.
type conn struct {
	hub    *hub.Hub
	dps    *dps.Service
	c      *hub.Conn
	engine *amqp.Conn

	// Used only by the connection's goroutine.
	who      *dps.Client // nil before SASL PLAIN or TPM, or before the first link
	tpm      tpmDialogue
	attaches int

	mu       sync.Mutex // guards the fields below
	receiver *amqp.Link // the newest link for answers; nil = none
	waiting  [][]byte   // answers that wait for credit
	number   uint64     // of the last answer
	reported bool       // an event reported the connection
}

var (
	_ amqp.Handler    = (*conn)(nil)
	_ amqp.Challenger = (*conn)(nil)
	_ hub.Peer        = (*conn)(nil)
)

func (a *conn) Matches(selector string) bool { return a.c.ID.Matches(selector) }

func (a *conn) Present(identity.Identity, bool) bool { return false }

func (a *conn) Leave() {}

func (a *conn) Expel(_ string, cause error, condition string) {
	a.engine.Close(&wire.Error{Condition: wire.Symbol(condition), Description: cause.Error()})
	a.c.CloseGracefully(cause)
}

func (a *conn) Finish(cause error, live, _ bool) {
	a.mu.Lock()
	reported := a.reported
	a.mu.Unlock()
	switch {
	case live:
		a.hub.Event(event.Event{Kind: event.Disconnected, Err: cause}, a.c)
	case !reported:
		a.hub.Unserved(a.c, cause)
	}
}

// refused reports a refusal, of the link or of the whole connection.
func (a *conn) refused(address string, why error) {
	a.mu.Lock()
	a.reported = true
	a.mu.Unlock()
	a.hub.Event(event.Event{Kind: event.Refused, Name: address, Err: why}, a.c)
}

// Mechanisms returns the mechanisms for tokens, certificates and TPMs.
func (a *conn) Mechanisms() []wire.Symbol {
	return []wire.Symbol{"PLAIN", "EXTERNAL", "ANONYMOUS", mechanismTPM}
}

// Authenticate checks the response for the chosen mechanism. Without PLAIN the client is known by
// its certificate when it attaches a link.
func (a *conn) Authenticate(mechanism wire.Symbol, response []byte) uint8 {
	if in := a.hub.Faults.Take(fault.RefuseSASL, identity.Identity{}); in != nil {
		a.hub.Happened(in, a.c)
		a.refused("", hub.FaultError(fault.RefuseSASL))
		return in.Fault.Code
	}
	var err error
	switch {
	case mechanism == "PLAIN":
		err = a.plain(string(response))
	case mechanism == "EXTERNAL" && len(a.c.PeerChain()) == 0:
		err = errors.New("SASL EXTERNAL: no certificate")
	}
	return a.outcome(err)
}

// outcome returns the outcome code for the result of a SASL dialogue.
func (a *conn) outcome(err error) uint8 {
	if err != nil {
		a.c.SetCause(err)
		a.refused("", err)
		return wire.SASLAuth
	}
	return wire.SASLOK
}

// plain checks [authzid] NUL authcid NUL password, where authcid is "scope/registrations/id". A
// device that is not enrolled is accepted: it learns that from the answer to its registration.
func (a *conn) plain(response string) error {
	part := strings.Split(response, "\x00")
	if len(part) != 3 || part[0] != "" && part[0] != part[1] {
		return errors.New("SASL PLAIN: not a user and a password")
	}
	token, err := identity.ParseToken(part[2])
	if err != nil {
		return fmt.Errorf("SASL PLAIN: %w", err)
	}
	return a.identify(part[1], &token, nil)
}

// identify sets the client's registration and checks its credentials.
func (a *conn) identify(path string, token *identity.Token, tpm *dps.TPM) error {
	scope, id, ok := parsePath(path)
	if !ok {
		return fmt.Errorf("%q is not a registration", path)
	}
	who := &dps.Client{
		ID: id, Protocol: hubdata.AMQP, Connection: a.c.Number, Token: token, Chain: a.c.PeerChain(),
		TPM: tpm,
	}
	a.c.Identify(who.Identity())
	if bad := a.dps.CheckIdentity(scope, who); bad != nil {
		return bad
	}
	if bad := a.dps.Authenticate(who); bad != nil && bad.Code != dps.CodeNotEnrolled {
		return bad
	}
	a.who = who
	return nil
}

// parsePath parses "scope/registrations/id", with an optional slash before it.
func parsePath(path string) (scope, id string, ok bool) {
	part := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(part) != 3 || !strings.EqualFold(part[1], "registrations") {
		return "", "", false
	}
	return part[0], part[2], true
}

// Open checks a connection.
func (a *conn) Open(o *wire.Open) error {
	h, c, id := a.hub, a.c, a.c.ID
	if err := c.ConnectFaults(id); err != nil {
		return err
	}
	if in := h.Faults.Take(fault.RefuseConnect, id); in != nil {
		h.Happened(in, c)
		c.SetCause(hub.FaultError(fault.RefuseConnect))
		return wire.Errorf(wire.Symbol(in.Fault.Condition), "%s", in.Fault.Description)
	}
	if in := h.Faults.Take(fault.SlowConnack, id); in != nil {
		h.Happened(in, c)
		if !c.Sleep(in.Fault.Delay) {
			return hub.FaultError(fault.SlowConnack)
		}
	}
	if !h.Knows(o.Hostname) {
		return wire.Errorf(wire.NotFound, "host name %q is not this service", o.Hostname)
	}
	return nil
}

// Opened marks the connection as established.
func (a *conn) Opened() error {
	a.c.SetDeadline(time.Time{})
	a.c.Establish()
	a.mu.Lock()
	a.reported = true
	a.mu.Unlock()
	a.hub.Event(event.Event{Kind: event.Connected}, a.c)
	a.hub.Changed.Wake()
	a.hub.Garbage(fault.GarbageOnConnect, a.c, shortFrame)
	return nil
}

// Idle ends a connection whose client was silent for too long.
func (a *conn) Idle() { a.c.CloseGracefully(amqp.ErrIdle) }
