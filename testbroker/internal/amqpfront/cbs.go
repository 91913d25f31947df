package amqpfront

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// tokenTypes are the token types that clients send.
var tokenTypes = map[string]bool{"servicebus.windows.net:sastoken": true, "azure-devices.net:sastoken": true}

// A grant is the right that a token gives until it expires. Guarded by Front.mu.
type grant struct {
	until time.Time
	timer *time.Timer
}

// granted is grantedLocked for callers without the lock.
func (a *conn) granted(id hub.Identity) bool {
	a.front.mu.Lock()
	defer a.front.mu.Unlock()
	return a.grantedLocked(id)
}

// grantedLocked reports whether a token covers an identity.
func (a *conn) grantedLocked(id hub.Identity) bool {
	now := a.hub.Now()
	for _, key := range [...]hub.Identity{id, {}} {
		if g := a.grants[key]; g != nil && now.Before(g.until) {
			return true
		}
	}
	return false
}

// errTooManyTokens is the refusal of a token beyond the limit.
var errTooManyTokens = errors.New("403005 IotHubMaxCbsTokenExceeded")

// grant adds a valid token for an identity or for all. When a token from SASL expires, the
// connection ends.
func (a *conn) grant(id hub.Identity, t hub.Token, sasl bool) error {
	h := a.hub
	until := t.Deadline(h.ConnectionGrace)
	a.front.mu.Lock()
	if a.ended {
		a.front.mu.Unlock()
		return net.ErrClosed
	}
	before := a.grants[id]
	if before == nil && len(a.grants) >= h.AMQP.MaxTokens {
		a.front.mu.Unlock()
		return errTooManyTokens
	}
	if before != nil {
		before.timer.Stop()
	}
	g := &grant{until: until}
	a.grants[id] = g
	g.timer = time.AfterFunc(max(until.Sub(h.Now()), 0), func() { a.expire(id, g, sasl) })
	a.front.mu.Unlock()
	a.admit(id)
	return nil
}

// expire runs when a token expires: it detaches the links that the token allowed.
func (a *conn) expire(id hub.Identity, g *grant, sasl bool) {
	h := a.hub
	if !h.Enter() {
		return
	}
	defer h.Wg.Done()
	a.front.mu.Lock()
	if a.grants[id] != g || a.ended {
		a.front.mu.Unlock()
		return
	}
	delete(a.grants, id)
	var links []*hubLink
	var lost []hub.Identity
	for _, l := range a.linksLocked("", fault.LinkAny) {
		if (id == hub.Identity{} || l.id == id) && !a.grantedLocked(l.id) {
			links = append(links, l)
		}
	}
	for _, who := range a.whoLocked("") {
		if (id == hub.Identity{} || who == id) && !a.grantedLocked(who) {
			lost = append(lost, who)
			delete(a.who, who)
		}
	}
	a.front.mu.Unlock()
	if a.c.Mode.Load() != hub.Open {
		return
	}
	for _, who := range lost {
		h.Event(event.Event{Kind: event.Disconnected, DeviceID: who.Device, ModuleID: who.Module, Err: hub.ErrTokenExpired},
			a.c)
	}
	e := wire.Errorf(wire.UnauthorizedAccess, "401003 IotHubUnauthorized: token expired")
	if sasl {
		a.close(e, hub.ErrTokenExpired)
	} else {
		for _, l := range links {
			l.detach(e, true)
		}
	}
	h.Changed.Wake()
}

// resourceOf returns the identity of a token, the empty one for all devices. The resource may be
// percent-encoded once, its device id twice.
func (f *Front) resourceOf(t hub.Token) (hub.Identity, error) {
	h := f.hub
	text := t.Resource
	var last hub.Identity
	found := false
	for range 2 {
		decoded, err := url.PathUnescape(text)
		if err != nil {
			break
		}
		text = decoded
		part := strings.Split(text, "/")
		if !strings.EqualFold(part[0], h.Host) {
			continue
		}
		if len(part) == 1 || len(part) == 2 && part[1] == "devices" {
			return hub.Identity{}, nil
		}
		id := hub.Identity{Device: part[min(2, len(part)-1)]}
		if len(part) == 5 && part[3] == "modules" {
			id.Module = part[4]
		} else if len(part) != 3 {
			continue
		}
		if part[1] != "devices" {
			continue
		}
		if last, found = id, true; h.Registered(id) {
			break
		}
	}
	if !found {
		return hub.Identity{}, fmt.Errorf("token for %q is for no device of this hub", t.Resource)
	}
	return last, nil
}

// putToken handles a message to $cbs.
func (a *conn) putToken(l *hubLink, d amqp.Delivery) error {
	m, bad := readMessage(d)
	l.settle(d, bad)
	if bad != nil {
		return nil
	}
	id, tok, status, err := a.readToken(m)
	h := a.hub
	if status == 0 {
		if err := a.c.Unreachable(id); err != nil {
			return err
		}
		if err := a.barred(id); err != nil {
			return err
		}
		if in := h.Faults.Take(fault.DropOnToken, id); in != nil {
			h.HappenedTo(in, a.c, id)
			a.c.CutFor(hub.FaultError(fault.DropOnToken))
			return hub.FaultError(fault.DropOnToken)
		}
		if in := h.Faults.Take(fault.SwallowToken, id); in != nil {
			h.HappenedTo(in, a.c, id)
			return nil
		}
		if in := h.Faults.Take(fault.RefuseToken, id); in != nil {
			h.HappenedTo(in, a.c, id)
			status, err = in.Fault.Status, hub.FaultError(fault.RefuseToken)
		}
	}
	if in := h.Faults.Take(fault.SlowToken, id); in != nil {
		h.HappenedTo(in, a.c, id)
		h.Wg.Go(func() {
			if a.c.Sleep(in.Fault.Delay) {
				a.judge(l, m, id, tok, status, err)
			}
		})
		return nil
	}
	a.judge(l, m, id, tok, status, err)
	return nil
}

// readToken parses a put-token request. A status is that of a refusal.
func (a *conn) readToken(m *wire.Message) (id hub.Identity, tok hub.Token, status int, err error) {
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
	if tok, err = hub.ParseToken(text); err != nil {
		return id, tok, 400, err
	}
	if id, err = a.front.resourceOf(tok); err != nil {
		return id, tok, 401, err
	}
	return id, tok, 0, nil
}

// judge checks a token, unless status refuses it already, and answers.
func (a *conn) judge(l *hubLink, m *wire.Message, id hub.Identity, tok hub.Token, status int, err error) {
	h := a.hub
	if status == 0 {
		if id == (hub.Identity{}) {
			err = h.AuthorizePolicy(tok, hubdata.DeviceConnect)
		} else {
			err = h.Authorize(h.Host, id, tok)
		}
		if err == nil {
			err = a.grant(id, tok, false)
		}
		switch {
		case err == nil:
			status = 200
		case errors.Is(err, hub.ErrNotFound):
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

// answerToken sends the answer on the receiver of the same session, or else on any of the
// connection.
func (a *conn) answerToken(request *hubLink, m *wire.Message) {
	a.front.mu.Lock()
	var to *hubLink
	for l := range a.links {
		if l.kind == fault.LinkCBSReceiver && (to == nil || l.Session() == request.Session()) {
			to = l
		}
	}
	a.front.mu.Unlock()
	if to == nil {
		request.detach(wire.Errorf(wire.PreconditionFailed, "no receiver is attached to $cbs"), true)
		return
	}
	to.post.send(to, m)
}
