package engine

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

// Auth is enhanced authentication: a method with as many steps as it needs, and again on the live
// connection before the credentials expire (OpRenew), without a reconnect.
//
// With only a Method, the token of the credentials is the data of the first step, as in
// "OAUTH2-JWT", instead of the password.
//
// The functions must end when ctx does: with the attempt to connect, and for a renewal 20 s after
// each call. Without Start's data in that time the renewal fails with Timeout, and is tried again;
// without Continue's the session is replaced. An *transport.Error keeps its Kind; any other error
// is Unauthorized.
type Auth struct {
	// Method is the name that client and broker have for the method.
	Method string
	// Start returns the data of the first step, and when the credentials that it proves expire; the
	// zero time means never. Nil: the token of the credentials.
	Start func(ctx context.Context) (data []byte, expires time.Time, err error)
	// Continue answers the broker's data. With last the broker has accepted: the result is not sent,
	// and an error means that the broker has not proved its identity. Nil: there are no further steps,
	// and a broker that asks for one breaks the protocol.
	Continue func(ctx context.Context, data []byte, last bool) ([]byte, error)
}

// Reason codes of AUTH.
const (
	authContinue = 0x18
	authAgain    = 0x19
)

// authState is the state of authentication. It is guarded by session.mu.
type authState struct {
	creds   *transport.Credentials
	data    []byte // of the first step, for CONNECT
	step    authStep
	rounds  int
	request uint32 // the OpRenew
	expires time.Time
}

type authStep uint8

const (
	authIdle   authStep = iota
	authOurs            // a callback runs
	authTheirs          // the broker's answer is due
)

// authTimeout bounds each callback of a renewal. One that hangs in Start fails it, with the default
// device.Options.AckTimeout, before that replaces the session.
const authTimeout = 20 * time.Second

var errAuthTime = &transport.Error{Kind: transport.Timeout, Op: transport.OpRenew, Proto: mqttwire.Proto,
	Err: errors.New("Auth, or the token source, took longer than 20 s")}

// withinTime calls f, a step of a renewal, within authTimeout.
func (v *five) withinTime(f func(ctx context.Context) error) error {
	ctx, cancel := lifetime.WithinTime(v.life, authTimeout)
	defer cancel()
	err := f(ctx)
	if ctx.Err() != nil && v.life.Err() == nil {
		err = errAuthTime
	}
	return err
}

// maxRounds bounds the steps of one authentication.
const maxRounds = 16

// startAuth gets the data of the first step, for CONNECT.
func (v *five) startAuth(ctx context.Context, token *transport.Token) error {
	data, expires, err := v.first(ctx, token)
	if err != nil {
		return err
	}
	if len(data) > mqttwire.MaxText {
		return errAuthData
	}
	v.auth.data, v.authExpires = data, expires
	return nil
}

var errAuthData = mqttwire.Invalid("the data of an authentication step has more than 65535 bytes")

// first returns the data of the first step. token is the one of a dial, nil for another.
func (v *five) first(ctx context.Context, token *transport.Token) (data []byte, expires time.Time, err error) {
	if start := v.opt.Auth.Start; start != nil {
		failed := callback.Run("Auth.Start", func() {
			data, expires, err = start(ctx)
			err = authError(err) // may panic, as the methods of err may
		})
		if failed != nil {
			err = authError(failed)
		}
		return data, expires, err
	}
	if token == nil {
		fresh, err := v.auth.creds.NewToken(ctx)
		if err != nil {
			return nil, expires, err
		}
		token = &fresh
	}
	data = []byte(token.Text.Reveal())
	if !token.Fixed {
		expires = token.Expires
	}
	token.Text = nil // it is no password
	return data, expires, nil
}

// further answers the broker's data.
func (v *five) further(ctx context.Context, data []byte, last bool) (answer []byte, err error) {
	next := v.opt.Auth.Continue
	if next == nil {
		if last {
			return nil, nil
		}
		return nil,
			mqttwire.NewViolation("the broker asks for a further step of authentication, and Auth.Continue is not set")
	}
	failed := callback.Run("Auth.Continue", func() {
		answer, err = next(ctx, data, last)
		err = authError(err)
	})
	if failed != nil {
		err = authError(failed)
	}
	if err == nil && len(answer) > mqttwire.MaxText {
		err = errAuthData
	}
	return answer, err
}

// authError gives an error of a callback its Kind, and hides its secrets.
func authError(err error) error {
	if err == nil {
		return nil
	}
	own := transport.Error{Kind: transport.Unauthorized, Scope: transport.ScopeConnection, Op: transport.OpDial,
		Proto: mqttwire.Proto, Err: err}
	if e := transport.Find(err); e != nil {
		own = *e
	}
	own.Err = scrub.Cause(own.Err)
	return &own
}

// appendAuth appends an AUTH.
func (v *five) appendAuth(dst []byte, code byte, data []byte) ([]byte, error) {
	p := mqttwire.AppendString(nil, mqttwire.AuthMethod, v.opt.Auth.Method)
	p = mqttwire.AppendString(p, mqttwire.AuthData, string(data))
	return mqttwire.AppendReason(dst, mqttwire.Auth, code, p)
}

// sameMethod checks the method in a packet of the broker: [MQTT-4.12.0-5].
func (v *five) sameMethod(p mqttwire.Properties) error {
	if method := p.Text(mqttwire.AuthMethod); method != nil && string(method) != v.opt.Auth.Method {
		return mqttwire.NewViolation("the broker answers with another authentication method")
	}
	return nil
}

// authWhileDialing answers an AUTH before the CONNACK.
func (v *five) authWhileDialing(s *session, body []byte) error {
	r, err := mqttwire.ReadReason(mqttwire.Auth, body)
	switch {
	case err != nil:
		return mqttwire.Violation{Err: err}
	case r.Code != authContinue:
		return mqttwire.NewViolation("the broker's AUTH does not continue the authentication")
	case v.auth.rounds == maxRounds:
		return errRounds
	}
	v.auth.rounds++
	if err := v.sameMethod(r.Properties); err != nil {
		return err
	}
	answer, err := v.further(v.ctx, r.Properties.Text(mqttwire.AuthData), false)
	if err != nil {
		return err
	}
	packet, err := v.appendAuth(nil, authContinue, answer)
	if err != nil {
		return err
	}
	_, err = s.conn.Write(packet)
	return err
}

var errRounds = mqttwire.NewViolation("the broker asks for more steps of authentication than any method has")

// finishAuth checks the last data of the broker.
func (v *five) finishAuth(ctx context.Context, p mqttwire.Properties) error {
	if err := v.sameMethod(p); err != nil {
		return err
	}
	data := p.Text(mqttwire.AuthData)
	if data == nil && v.opt.Auth.Continue == nil {
		return nil
	}
	_, err := v.further(ctx, data, true)
	return err
}

var errRenewing = errors.New("an authentication is under way already")

// renew authenticates again on the live connection. A refusal of the broker ends the session.
func (v *five) renew(s *session, r *transport.Request) {
	if v.opt.Auth == nil {
		s.refuse(r, transport.Unsupported, errUnsupported)
		return
	}
	s.mu.Lock()
	idle := v.auth.step == authIdle
	if idle {
		v.auth.step, v.auth.request, v.auth.rounds = authOurs, r.ID, 0
	}
	s.mu.Unlock()
	if !idle {
		s.refuse(r, transport.Unavailable, errRenewing)
		return
	}
	v.help(func() {
		var data []byte
		var expires time.Time
		err := v.withinTime(func(ctx context.Context) (err error) {
			data, expires, err = v.first(ctx, nil)
			return err
		})
		s.mu.Lock()
		v.auth.expires = expires
		s.mu.Unlock()
		v.sendAuth(s, authAgain, data, err)
	})
}

// sendAuth sends a step of the authentication that renew began, or ends it with err.
func (v *five) sendAuth(s *session, code byte, data []byte, err error) {
	var packet []byte
	if err == nil && len(data) > mqttwire.MaxText {
		err = errAuthData
	}
	if err == nil {
		packet, err = v.appendAuth(nil, code, data)
	}
	if err == nil && len(packet) > v.peer.maxPacket {
		err = mqttwire.TooLarge(len(packet), len(packet), v.peer.maxPacket)
	}
	if err != nil {
		v.renewed(s, err)
		return
	}
	s.mu.Lock()
	v.auth.step = authTheirs
	s.mu.Unlock()
	if s.enter() {
		s.writeBegan = time.Now()
		s.write(packet)
		s.leave()
	}
	clear(packet)
}

// renewed replies to the OpRenew.
func (v *five) renewed(s *session, err error) {
	s.mu.Lock()
	request, reply, begun := v.auth.request, transport.Reply{Expires: v.auth.expires}, v.auth.rounds > 0
	v.auth.step = authIdle
	s.mu.Unlock()
	if err != nil {
		e := mqttwire.Refused(transport.OpRenew, transport.KindOf(err), err)
		if cause := transport.Find(err); cause != nil {
			e.RetryAfter = cause.RetryAfter
		}
		if begun {
			e.RetryAfter = -1 // the connection must end: MQTT 5, 4.12.1
		}
		reply = transport.Reply{Err: e}
	}
	s.sink.Reply(request, reply)
}

// authReceived handles an AUTH on the live connection.
func (v *five) authReceived(s *session, r *mqttwire.Reason) error {
	if v.opt.Auth == nil || r.Code != authContinue && r.Code != 0 {
		return mqttwire.NewViolation("the broker sent an AUTH that was not expected")
	}
	if err := v.sameMethod(r.Properties); err != nil {
		return err
	}
	s.mu.Lock()
	due := v.auth.step == authTheirs
	if due {
		v.auth.step = authOurs
		v.auth.rounds++
	}
	rounds := v.auth.rounds
	s.mu.Unlock()
	switch {
	case !due:
		return mqttwire.NewViolation("the broker sent an AUTH that answers nothing")
	case rounds > maxRounds:
		return errRounds
	}
	data := append([]byte(nil), r.Properties.Text(mqttwire.AuthData)...)
	last := r.Code == 0
	v.help(func() {
		var answer []byte
		err := v.withinTime(func(ctx context.Context) (err error) {
			answer, err = v.further(ctx, data, last)
			return err
		})
		switch {
		case err != nil && last:
			s.fail(err) // the broker is not the one it claims to be
		case err != nil || last:
			v.renewed(s, err)
		default:
			v.sendAuth(s, authContinue, answer, nil)
		}
	})
	return nil
}
