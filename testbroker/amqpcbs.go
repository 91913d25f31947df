package testbroker

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// tokenTypes are what clients call tokens.
var tokenTypes = map[string]bool{"servicebus.windows.net:sastoken": true, "azure-devices.net:sastoken": true}

// A grant is what a token allows, until it ends. Guarded by Hub.mu.
type grant struct {
	until time.Time
	timer *time.Timer
}

// grantedLocked says whether a token covers an identity.
func (a *amqpConn) grantedLocked(id identity) bool {
	now := a.hub.now()
	for _, key := range [...]identity{id, {}} {
		if g := a.grants[key]; g != nil && now.Before(g.until) {
			return true
		}
	}
	return false
}

// errTooManyTokens refuses a token.
var errTooManyTokens = errors.New("403005 IotHubMaxCbsTokenExceeded")

// grant enters a token that was found good, for an identity or for all. A token by SASL ends the
// connection with it.
func (a *amqpConn) grant(id identity, t token, sasl bool) error {
	h := a.hub
	until := t.deadline(h.life)
	h.mu.Lock()
	if a.ended {
		h.mu.Unlock()
		return net.ErrClosed
	}
	before := a.grants[id]
	if before == nil && len(a.grants) >= h.amqp.MaxTokens {
		h.mu.Unlock()
		return errTooManyTokens
	}
	if before != nil {
		before.timer.Stop()
	}
	g := &grant{until: until}
	a.grants[id] = g
	g.timer = time.AfterFunc(max(until.Sub(h.now()), 0), func() { a.expire(id, g, sasl) })
	h.mu.Unlock()
	a.admit(id)
	return nil
}

// expire runs when a token ends: the links go that it allowed.
func (a *amqpConn) expire(id identity, g *grant, sasl bool) {
	h := a.hub
	if !h.enter() {
		return
	}
	defer h.wg.Done()
	h.mu.Lock()
	if a.grants[id] != g || a.ended {
		h.mu.Unlock()
		return
	}
	delete(a.grants, id)
	var links []*amqpLink
	var lost []identity
	for _, l := range a.linksLocked("", LinkAny) {
		if (id == identity{} || l.id == id) && !a.grantedLocked(l.id) {
			links = append(links, l)
		}
	}
	for _, who := range a.whoLocked("") {
		if (id == identity{} || who == id) && !a.grantedLocked(who) {
			lost = append(lost, who)
			delete(a.who, who)
		}
	}
	h.mu.Unlock()
	if a.c.mode.Load() != open {
		return
	}
	for _, who := range lost {
		h.event(Event{Kind: Disconnected, DeviceID: who.device, ModuleID: who.module, Err: ErrTokenExpired}, a.c)
	}
	e := wire.Errorf(wire.UnauthorizedAccess, "401003 IotHubUnauthorized: token expired")
	if sasl {
		a.close(e, ErrTokenExpired)
	} else {
		for _, l := range links {
			l.detach(e, true)
		}
	}
	h.changed.wake()
}

// resourceOf returns the identity that a token is for, the empty one for all devices. The resource
// may be encoded once or, its device id, twice.
func (f *amqpFront) resourceOf(t token) (identity, error) {
	h := f.hub
	text := t.resource
	var last identity
	found := false
	for range 2 {
		decoded, err := url.PathUnescape(text)
		if err != nil {
			break
		}
		text = decoded
		part := strings.Split(text, "/")
		if !strings.EqualFold(part[0], h.host) {
			continue
		}
		if len(part) == 1 || len(part) == 2 && part[1] == "devices" {
			return identity{}, nil
		}
		id := identity{device: part[min(2, len(part)-1)]}
		if len(part) == 5 && part[3] == "modules" {
			id.module = part[4]
		} else if len(part) != 3 {
			continue
		}
		if part[1] != "devices" {
			continue
		}
		if last, found = id, true; h.registered(id) {
			break
		}
	}
	if !found {
		return identity{}, fmt.Errorf("token for %q is for no device of this hub", t.resource)
	}
	return last, nil
}

// putToken deals with a message to $cbs.
func (a *amqpConn) putToken(l *amqpLink, d amqp.Delivery) error {
	m, bad := readMessage(d)
	l.settle(d, bad)
	if bad != nil {
		return nil
	}
	id, tok, status, err := a.readToken(m)
	h := a.hub
	if status == 0 {
		if err := a.gone(id); err != nil {
			return err
		}
		if err := a.barred(id); err != nil {
			return err
		}
		if in := h.faults.take(DropOnToken, id); in != nil {
			h.happenedTo(in, a.c, id)
			a.c.cutFor(faultError(DropOnToken))
			return faultError(DropOnToken)
		}
		if in := h.faults.take(NoToken, id); in != nil {
			h.happenedTo(in, a.c, id)
			return nil
		}
		if in := h.faults.take(RefuseToken, id); in != nil {
			h.happenedTo(in, a.c, id)
			status, err = in.fault.Status, faultError(RefuseToken)
		}
	}
	if in := h.faults.take(SlowToken, id); in != nil {
		h.happenedTo(in, a.c, id)
		h.wg.Go(func() {
			if a.c.sleep(in.fault.Delay) {
				a.judge(l, m, id, tok, status, err)
			}
		})
		return nil
	}
	a.judge(l, m, id, tok, status, err)
	return nil
}

// readToken takes a request apart. A status is that of a refusal.
func (a *amqpConn) readToken(m *wire.Message) (id identity, tok token, status int, err error) {
	text, isText := m.Value.(string)
	operation, kind := m.ApplicationProperties.Text("operation"), m.ApplicationProperties.Text("type")
	name, _ := m.ApplicationProperties.Get("name")
	_, named := name.(string)
	switch {
	case operation != "put-token":
		return id, tok, 400, fmt.Errorf("operation %q, want put-token", operation)
	case !tokenTypes[kind]:
		return id, tok, 400, fmt.Errorf("type %q of a token", kind)
	case !named:
		return id, tok, 400, errors.New("put-token without a name")
	case !isText:
		return id, tok, 400, errors.New("put-token whose body is not a string")
	}
	if tok, err = parseToken(text); err != nil {
		return id, tok, 400, err
	}
	if id, err = a.front.resourceOf(tok); err != nil {
		return id, tok, 401, err
	}
	return id, tok, 0, nil
}

// judge checks a token, unless a status refuses it already, and answers.
func (a *amqpConn) judge(l *amqpLink, m *wire.Message, id identity, tok token, status int, err error) {
	h := a.hub
	if status == 0 {
		h.mu.Lock()
		if id == (identity{}) {
			err = h.authorizePolicyLocked(tok, DeviceConnect)
		} else {
			err = h.authorizeLocked(h.host, id, tok)
		}
		h.mu.Unlock()
		if err == nil {
			err = a.grant(id, tok, false)
		}
		switch {
		case err == nil:
			status = 200
		case errors.Is(err, ErrNotFound):
			status = 404
		case err == errTooManyTokens:
			status = 403
		default:
			status = 401
		}
	}
	description := "OK"
	if status == 200 {
		a.served()
	} else {
		description = err.Error()
		a.refused(id, err)
	}
	var correlation any
	if m.Properties != nil {
		correlation = m.Properties.MessageID // of the same type
	}
	a.answerToken(l, &wire.Message{
		Properties: &wire.Properties{CorrelationID: correlation},
		ApplicationProperties: wire.Map{{Key: "status-code", Value: int32(status)}, {Key: "status-description",
			Value: description}},
		HasValue: true,
	})
}

// answerToken sends the answer on the receiver of the same session, or on any of the connection.
func (a *amqpConn) answerToken(request *amqpLink, m *wire.Message) {
	h := a.hub
	h.mu.Lock()
	var to *amqpLink
	for l := range a.links {
		if l.kind == LinkCBSReceiver && (to == nil || l.Session() == request.Session()) {
			to = l
		}
	}
	h.mu.Unlock()
	if to == nil {
		request.detach(wire.Errorf(wire.PreconditionFailed, "no receiver is attached to $cbs"), true)
		return
	}
	to.post.send(to, m)
}
