package engine

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

func (v *five) begin(ctx context.Context, t *Transport, cfg *transport.Config, token *transport.Token,
	d dialect.Session) error {
	v.judge, _ = d.(dialect.Judge)
	v.ctx, v.life, v.over = ctx, lifetime.New(), make(chan struct{})
	v.window, v.receiveMaximum = cfg.Window, v.opt.ReceiveMaximum
	if v.receiveMaximum == 0 {
		v.receiveMaximum = max(1, min(cfg.Queue, 65535))
	}
	v.peer = limits{}
	v.aliases, v.alias = v.aliases[:0], 0
	clear(v.unsettled)
	v.waiting, v.pending, v.declined, v.exceeded = 0, 0, 0, false
	v.control, v.controlling, v.ending = v.control[:0], false, nil
	v.wanted, v.wake = false, nil
	v.keepAnswers()
	v.auth = authState{creds: cfg.Creds}
	if v.opt.Auth == nil {
		return nil
	}
	return v.startAuth(ctx, token)
}

func (v *five) dialed(creds *transport.Credentials, hello *dialect.Hello) *transport.Credentials {
	if hello.Host == "" {
		return creds
	}
	other := *creds
	other.GatewayHost = hello.Host
	return &other
}

func (v *five) connect(dst []byte, g *mqttwire.Greeting, will dialect.Publication) ([]byte, error) {
	if refused := v.complete(g, will); refused != nil {
		return nil, invalidConnect(refused)
	}
	if n := mqttwire.ConnectSize5(g); v.all.WriteBuffer > 0 && n > v.all.WriteBuffer {
		return nil, v.all.tooLongConnect(n)
	}
	dst, err := mqttwire.AppendConnect5(dst, g)
	clear(g.Properties) // they may prove the identity
	clear(v.auth.data)
	if err != nil {
		return nil, invalidConnect(err)
	}
	return dst, nil
}

// complete adds the properties to a CONNECT.
func (v *five) complete(g *mqttwire.Greeting, will dialect.Publication) *transport.Error {
	if v.opt.AssignClientID {
		g.ClientID = v.clientID
	}
	expiry := seconds(v.opt.SessionExpiry)
	if expiry == 0 && !g.CleanSession {
		expiry = defaultExpiry
	}
	p := v.block[:0]
	if expiry > 0 {
		p = mqttwire.AppendNumber(p, mqttwire.SessionExpiry, expiry)
	}
	p = mqttwire.AppendNumber(p, mqttwire.ReceiveMaximum, uint32(v.receiveMaximum))
	p = mqttwire.AppendNumber(p, mqttwire.MaximumPacketSize, uint32(v.opt.MaximumPacketSize))
	if a := v.opt.Auth; a != nil {
		p = mqttwire.AppendString(p, mqttwire.AuthMethod, a.Method)
		p = mqttwire.AppendString(p, mqttwire.AuthData, string(v.auth.data))
	}
	for i := range v.opt.UserProperties {
		p = mqttwire.AppendPair(p, v.opt.UserProperties[i].Name, v.opt.UserProperties[i].Value)
	}
	v.block, g.Properties = p, p
	if will.Msg == nil {
		return nil
	}
	var w []byte
	if v.opt.WillDelay > 0 {
		w = mqttwire.AppendNumber(w, mqttwire.WillDelay, seconds(v.opt.WillDelay))
	}
	w, refused := appendProperties(w, will.Msg, will.Names, v.auth.creds.Time)
	if refused != nil {
		return refused
	}
	g.Will.Properties = w
	return nil
}

// maxGreeting bounds the packets before and with the CONNACK.
const maxGreeting = 128 << 10

func (v *five) greeted(s *session, in []byte) (size int, done bool, err error) {
	h, ok, err := v.next(in)
	switch {
	case len(in) == 0:
		return 0, false, nil
	case h.Type != mqttwire.Connack && (h.Type != mqttwire.Auth || v.opt.Auth == nil):
		return 0, false, mqttwire.FirstBytes(in)
	case err != nil:
		return 0, false, err
	case ok && h.Body > maxGreeting:
		return 0, false, tooLongPacket(h)
	case !ok || h.Size+h.Body > len(in):
		return 0, false, nil
	}
	size = h.Size + h.Body
	if h.Type == mqttwire.Auth {
		return size, false, v.authWhileDialing(s, in[h.Size:size])
	}
	if h.Body == 2 { // without properties: the broker speaks MQTT 3.1.1 alone, and says so as that does
		if _, code, err := mqttwire.ReadConnack(in[h.Size:size]); err == nil && code != 0 {
			return 0, false, &ConnackError{Code: code}
		}
	}
	c, err := mqttwire.ReadConnack5(in[h.Size:size])
	switch {
	case err != nil:
		return 0, false, mqttwire.Violation{Err: err}
	case !mqttwire.Accepted(c.Reason):
		return 0, false, mqttwire.Denied(v.refusedBy(mqttwire.PacketConnack, c.Reason, c.Properties))
	case c.Reason != 0:
		return 0, false, mqttwire.NewViolation("the broker's CONNACK has a reason code that is neither success nor failure")
	case c.Session && v.all.CleanSession:
		return 0, false, mqttwire.NewViolation("the broker kept a session that was to be discarded") // [MQTT-3.2.2-2]
	}
	if v.opt.Auth != nil {
		if err := v.finishAuth(v.ctx, c.Properties); err != nil {
			return 0, false, err
		}
	}
	v.accepted(s, &c)
	return size, true, nil
}

// maxAssigned is the length of the longest client id of a broker that is kept.
const maxAssigned = 256

// accepted applies what a CONNACK says.
func (v *five) accepted(s *session, c *mqttwire.Connack5) {
	if !c.Session { // the broker has forgotten what was under way; the queue sends it again, as new
		clear(s.t.inFlight)
		s.t.handshake = false
		clear(v.received)
		v.generation++
	}
	window := 65535
	for p, rest, ok := c.Properties.Next(); ok; p, rest, ok = rest.Next() {
		n := int(p.Number)
		switch p.ID {
		case mqttwire.ReceiveMaximum:
			window = n
		case mqttwire.MaximumPacketSize:
			v.peer.maxPacket = int(min(p.Number, mqttwire.MaxBody)) // an int may have 32 bits
		case mqttwire.TopicAliasMaximum:
			v.peer.aliases = min(n, maxAliases)
		case mqttwire.MaximumQoS:
			v.peer.onlyQoS0 = n == 0
		case mqttwire.RetainAvailable:
			v.peer.noRetain = n == 0
		case mqttwire.WildcardAvailable:
			v.peer.noWildcard = n == 0
		case mqttwire.SharedAvailable:
			v.peer.noShared = n == 0
		case mqttwire.ServerKeepAlive:
			if n > 0 { // 0 and a longer time than ours: the pings still find a dead connection
				s.info.KeepAlive = min(s.info.KeepAlive, time.Duration(n)*time.Second)
			}
		case mqttwire.AssignedClientID:
			if id := string(p.Text); len(id) <= maxAssigned && mqttwire.ValidText(id) {
				v.clientID = id // else the next CONNECT asks for another one
			}
		default: // what a client may ignore
		}
	}
	if _, ok := s.dialect.(dialect.Active); ok {
		v.ownWindow = min(maxOwn, window/2)
		window -= v.ownWindow
	}
	if window < v.window {
		s.info.Window = window
	}
	if v.peer.maxPacket == 0 {
		v.peer.maxPacket = mqttwire.MaxBody
	}
	s.info.MaxSize = min(s.info.MaxSize, v.peer.maxPacket)
	if !v.authExpires.IsZero() {
		s.info.Expires = v.authExpires
	}
}

// refusedBy returns the error for a code in a packet.
func (v *five) refusedBy(packet string, code byte, p mqttwire.Properties) *ReasonError {
	e := mqttwire.NewReasonError(packet, code, p.Text(mqttwire.ReasonString), p.Text(mqttwire.ServerReference))
	if v.judge != nil {
		v.judge.Judge(e)
	}
	return e
}
