package amqpfront

import (
	"errors"
	"fmt"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// tokenTypes are the token types that clients send.
var tokenTypes = map[string]bool{"servicebus.windows.net:sastoken": true, "azure-devices.net:sastoken": true}

// putToken handles a message to $cbs.
func (a *conn) putToken(l *hubLink, d amqp.Delivery) error {
	m, bad := readMessage(d)
	l.settle(d, bad)
	if bad != nil {
		return nil
	}
	s, tok, status, err := a.readToken(m)
	h, id := a.hub, s.id
	if status == 0 {
		if err := a.c.Unreachable(id); err != nil {
			return err
		}
		if err := a.barred(id); err != nil {
			return err
		}
		if h.Strike(fault.DropOnToken, id, a.c, nil) != nil {
			return a.c.CutBy(fault.DropOnToken)
		}
		if h.Strike(fault.SwallowToken, id, a.c, nil) != nil {
			return nil
		}
		if in := h.Strike(fault.RefuseToken, id, a.c, nil); in != nil {
			status, err = in.Fault.Status, hub.FaultError(fault.RefuseToken)
		}
	}
	if in := h.Strike(fault.SlowToken, id, a.c, nil); in != nil {
		h.Wg.Go(func() {
			if a.c.Sleep(in.Fault.Delay) {
				a.judge(l, m, s, tok, status, err)
			}
		})
		return nil
	}
	a.judge(l, m, s, tok, status, err)
	return nil
}

// readToken parses a put-token request. A status is that of a refusal.
func (a *conn) readToken(m *wire.Message) (s scope, tok identity.Token, status int, err error) {
	text, isText := m.Value.(string)
	operation, kind := m.ApplicationProperties.Text("operation"), m.ApplicationProperties.Text("type")
	name, _ := m.ApplicationProperties.Get("name")
	_, named := name.(string)
	switch {
	case operation != "put-token":
		return s, tok, 400, fmt.Errorf("operation %q, want put-token", operation)
	case !tokenTypes[kind]:
		return s, tok, 400, fmt.Errorf("type %q of a token", kind)
	case !named:
		return s, tok, 400, errors.New("put-token without a name")
	case !isText:
		return s, tok, 400, errors.New("put-token whose body is not a string")
	}
	if tok, err = identity.ParseToken(text); err != nil {
		return s, tok, 400, err
	}
	if s, err = a.front.scopeOf(tok); err != nil {
		return s, tok, 401, err
	}
	return s, tok, 0, nil
}

// judge checks a token, unless status refuses it already, and answers.
func (a *conn) judge(l *hubLink, m *wire.Message, s scope, tok identity.Token, status int, err error) {
	if status == 0 {
		err = a.accept(s, tok, false)
		switch {
		case err == nil:
			status = 200
		case errors.Is(err, hub.ErrNotFound):
			status = 404
		case errors.Is(err, errTooManyTokens):
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
		a.refused(s.id, err)
	}
	var correlation any
	var replyTo string
	if p := m.Properties; p != nil {
		correlation, replyTo = p.MessageID, p.ReplyTo.V // the id keeps its type
	}
	a.reply(l, fault.LinkCBSReceiver, replyTo, &wire.Message{
		Properties: &wire.Properties{CorrelationID: correlation},
		ApplicationProperties: wire.Map{{Key: "status-code", Value: int32(status)}, {Key: "status-description",
			Value: description}},
		HasValue: true,
	})
}

// accept grants what a valid token gives a right to.
func (a *conn) accept(s scope, tok identity.Token, sasl bool) error {
	h := a.hub
	rights := hubdata.RightDeviceConnect
	if s.policy == "" {
		if err := h.Authorize(h.Host, s.id, tok); err != nil {
			return err
		}
	} else {
		var err error
		if rights, err = h.PolicyRights(tok); err != nil {
			return err
		}
		if !usable(s, rights) {
			return fmt.Errorf("the policy %q does not have the right", s.policy)
		}
	}
	if err := a.grant(s, rights, tok.Deadline(h.ConnectionGrace), sasl); err != nil || s.policy != "" {
		return err
	}
	err := h.Authorize(h.Host, s.id, tok)
	if err != nil { // removed or disabled meanwhile, perhaps before there was a grant to end
		a.Expel(s.id.String(), err, string(wire.UnauthorizedAccess))
	}
	return err
}

// usable reports whether rights on a scope let a client do anything over AMQP.
func usable(s scope, rights hubdata.Right) bool {
	return rights&hubdata.RightServiceConnect != 0 || rights&hubdata.RightDeviceConnect != 0 && s.allDevices()
}
