package testbroker

import (
	"cmp"
	"slices"
	"strings"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

func (k LinkKind) cbs() bool    { return k == LinkCBSSender || k == LinkCBSReceiver }
func (k LinkKind) paired() bool { return k >= LinkTwinSender && k <= LinkMethodReceiver }

// linkPaths is what stands behind the identity in the address of a link, in lower case. A path
// means one kind to clients that send and another to those that receive.
var linkPaths = []struct {
	path             string
	sender, receiver LinkKind // LinkAny = refused
}{
	{"messages/events", LinkTelemetry, LinkAny},
	{"messages/devicebound", LinkAny, LinkC2D},
	{"twin", LinkTwinSender, LinkTwinReceiver},
	{"methods/devicebound", LinkMethodSender, LinkMethodReceiver},
}

// classify finds out what a link is for by its address.
func (a *amqpConn) classify(link *amqp.Link) (*amqpLink, error) {
	l := &amqpLink{Link: link, conn: a}
	address, ok := addressOf(link)
	if !ok {
		return nil, wire.Errorf(wire.InvalidField, "address that is not a string")
	}
	if address == "$cbs" {
		l.kind = LinkCBSReceiver
		if link.Receives() {
			l.kind = LinkCBSSender
		}
		return l, nil
	}
	path, err := a.front.pathOf(address)
	if err != nil {
		return nil, err
	}
	id, rest, ok := a.hub.identityOf(path)
	if !ok {
		return nil, wire.Errorf(wire.NotFound, "address %q", address)
	}
	for _, p := range linkPaths {
		if !strings.EqualFold(p.path, rest) {
			continue
		}
		l.id, l.kind = id, p.receiver
		if link.Receives() {
			l.kind = p.sender
		}
		if l.kind == LinkAny && id.module != "" && p.receiver == LinkAny {
			return nil, wire.Errorf(wire.NotImplemented, "routes to inputs of modules")
		}
		if l.kind == LinkAny {
			return nil, wire.Errorf(wire.NotAllowed, "link in the wrong direction for %q", address)
		}
		return l, nil
	}
	return nil, wire.Errorf(wire.NotFound, "address %q", address)
}

// addressOf returns the address at the hub's end.
func addressOf(l *amqp.Link) (string, bool) {
	var address any
	if l.Receives() {
		address = l.Asked.Target.(*wire.Target).Address
	} else {
		address = l.Asked.Source.Address
	}
	s, ok := address.(string)
	return s, ok
}

// pathOf takes the host off an address that is a URI.
func (f *amqpFront) pathOf(address string) (string, error) {
	h := f.hub
	for _, scheme := range []string{"amqps://", "amqp://"} {
		if len(address) >= len(scheme) && strings.EqualFold(address[:len(scheme)], scheme) {
			host, path, _ := strings.Cut(address[len(scheme):], "/")
			if !h.knows(host) {
				return "", wire.Errorf(wire.NotFound, "host name %q is not this hub", host)
			}
			return path, nil
		}
	}
	return strings.TrimPrefix(address, "/"), nil
}

// linksLocked returns the attached links of a kind that a selector means. Those of $cbs belong to
// all whose tokens they carry.
func (a *amqpConn) linksLocked(selector string, kind LinkKind) []*amqpLink {
	var all []*amqpLink
	for l := range a.links {
		mine := l.id.matches(selector) && !l.kind.cbs()
		if kind.cbs() {
			mine = selector == "" || len(a.whoLocked(selector)) > 0
		}
		if mine && (kind == LinkAny || kind == l.kind) {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(x, y *amqpLink) int {
		return cmp.Or(cmp.Compare(x.id.String(), y.id.String()), cmp.Compare(x.kind, y.kind), cmp.Compare(x.Asked.Name,
			y.Asked.Name))
	})
	return all
}

// Links returns how many links of a kind over AMQP are attached for a device, named as in
// [Hub.Connections]. [LinkAny] counts all but those that carry tokens.
func (f *amqpFront) Links(device string, kind LinkKind) int { return len(f.linksOf(device, kind)) }

func (f *amqpFront) linksOf(device string, kind LinkKind) []*amqpLink {
	h := f.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*amqpLink
	for _, c := range h.connsLocked(device) {
		if a, ok := c.peer.(*amqpConn); ok {
			all = append(all, a.linksLocked(device, kind)...)
		}
	}
	return all
}

// DetachLinks detaches the links of a kind over AMQP that are attached for a device, named as in
// [Hub.Connections], with an error unless it is empty. It returns how many they were.
func (f *amqpFront) DetachLinks(device string, kind LinkKind, e AMQPError) int {
	all := f.linksOf(device, kind)
	for _, l := range all {
		l.detach(e.wire(), true)
	}
	return len(all)
}

// EndSessions ends the sessions in which links over AMQP are attached for a device, named as in
// [Hub.Connections], with an error unless it is empty. It returns how many they were.
func (f *amqpFront) EndSessions(device string, e AMQPError) int {
	n := 0
	done := make(map[*amqp.Session]bool)
	for _, l := range f.linksOf(device, LinkAny) {
		if s := l.Session(); !done[s] {
			done[s] = true
			n++
			l.conn.end(s, e.wire())
		}
	}
	return n
}

// CloseAMQP closes the connections over AMQP of a device, named as in [Hub.Connections], with an
// error unless it is empty. It returns how many they were.
func (f *amqpFront) CloseAMQP(device string, e AMQPError) int {
	h := f.hub
	n := 0
	for _, c := range h.connsOf(device) {
		if a := f.connOf(c); a != nil {
			n++
			a.close(e.wire(), ErrDropped)
		}
	}
	return n
}

// connOf returns what the front knows of a connection; nil if it does not speak AMQP.
func (f *amqpFront) connOf(c *conn) *amqpConn {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	a, _ := c.peer.(*amqpConn)
	return a
}

// end ends a session.
func (a *amqpConn) end(s *amqp.Session, e *wire.Error) {
	for _, l := range s.End(e) {
		a.Detached(l)
	}
}
