package amqpfront

import (
	"cmp"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

func cbs(k fault.LinkKind) bool    { return k == fault.LinkCBSSender || k == fault.LinkCBSReceiver }
func paired(k fault.LinkKind) bool { return k >= fault.LinkTwinSender && k <= fault.LinkMethodReceiver }

// linkPaths maps the path after the identity in a link's address, in lower case, to the kinds of
// the link. The kind depends on whether the client sends or receives.
var linkPaths = []struct {
	path             string
	sender, receiver fault.LinkKind // LinkAny = refused
}{
	{"messages/events", fault.LinkTelemetry, fault.LinkInput}, // inputs are those of modules
	{"messages/devicebound", fault.LinkAny, fault.LinkC2D},
	{"twin", fault.LinkTwinSender, fault.LinkTwinReceiver},
	{"methods/devicebound", fault.LinkMethodSender, fault.LinkMethodReceiver},
}

// classify returns the kind and identity of a link by its address.
func (a *conn) classify(link *amqp.Link) (*hubLink, error) {
	l := &hubLink{Link: link, conn: a}
	address, ok := addressOf(link)
	if !ok {
		return nil, wire.Errorf(wire.InvalidField, "address that is not a string")
	}
	if address == "$cbs" {
		l.kind = fault.LinkCBSReceiver
		if link.Receives() {
			l.kind = fault.LinkCBSSender
		}
		return l, nil
	}
	path, err := a.front.pathOf(address)
	if err != nil {
		return nil, err
	}
	if is, err := l.classifyBack(path); is {
		return l, err
	}
	id, rest, ok := a.hub.IdentityOf(path)
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
		if l.kind == fault.LinkAny || l.kind == fault.LinkInput && id.Module == "" {
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

// pathOf removes the host from an address that is a URI.
func (f *Front) pathOf(address string) (string, error) {
	h := f.hub
	for _, scheme := range []string{"amqps://", "amqp://"} {
		if len(address) >= len(scheme) && strings.EqualFold(address[:len(scheme)], scheme) {
			host, path, _ := strings.Cut(address[len(scheme):], "/")
			if !h.Knows(host) {
				return "", wire.Errorf(wire.NotFound, "host name %q is not this hub", host)
			}
			return path, nil
		}
	}
	return strings.TrimPrefix(address, "/"), nil
}

// linksOf is linksLocked for callers without the lock.
func (a *conn) linksOf(selector string, kind fault.LinkKind) []*hubLink {
	a.front.mu.Lock()
	defer a.front.mu.Unlock()
	return a.linksLocked(selector, kind)
}

// linksLocked returns the attached links of a kind that match a selector. $cbs links belong to all
// identities whose tokens they carry.
func (a *conn) linksLocked(selector string, kind fault.LinkKind) []*hubLink {
	var all []*hubLink
	for l := range a.links {
		mine := l.id.Matches(selector) && !cbs(l.kind)
		if cbs(kind) {
			mine = selector == "" || len(identity.Matching(a.who, selector)) > 0
		}
		if mine && (kind == fault.LinkAny || kind == l.kind) {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(x, y *hubLink) int {
		return cmp.Or(cmp.Compare(x.id.String(), y.id.String()), cmp.Compare(x.kind, y.kind), cmp.Compare(x.Asked.Name,
			y.Asked.Name))
	})
	return all
}

// Links returns how many AMQP links of a kind are attached for a device, named as in
// testbroker.Hub.Connections. [fault.LinkAny] counts all except the links for tokens.
func (f *Front) Links(device string, kind fault.LinkKind) int { return len(f.linksOf(device, kind)) }

func (f *Front) linksOf(device string, kind fault.LinkKind) []*hubLink {
	var all []*hubLink
	for _, c := range f.hub.ConnsOf(device) {
		if a := connOf(c); a != nil {
			all = append(all, a.linksOf(device, kind)...)
		}
	}
	return all
}

// DetachLinks detaches the AMQP links of a kind that are attached for a device, named as in
// testbroker.Hub.Connections, and returns their number. An empty error is not sent.
func (f *Front) DetachLinks(device string, kind fault.LinkKind, e hubdata.AMQPError) int {
	all := f.linksOf(device, kind)
	for _, l := range all {
		l.detach(errorOf(e), true)
	}
	return len(all)
}

// EndSessions ends the AMQP sessions in which links are attached for a device, named as in
// testbroker.Hub.Connections, and returns their number. An empty error is not sent.
func (f *Front) EndSessions(device string, e hubdata.AMQPError) int {
	n := 0
	done := make(map[*amqp.Session]bool)
	for _, l := range f.linksOf(device, fault.LinkAny) {
		if s := l.Session(); !done[s] {
			done[s] = true
			n++
			l.conn.end(s, errorOf(e))
		}
	}
	return n
}

// CloseAMQP closes the AMQP connections of a device, named as in testbroker.Hub.Connections, and
// returns their number. An empty error is not sent.
func (f *Front) CloseAMQP(device string, e hubdata.AMQPError) int {
	h := f.hub
	n := 0
	for _, c := range h.ConnsOf(device) {
		if a := connOf(c); a != nil {
			n++
			a.close(errorOf(e), hub.ErrDropped)
		}
	}
	return n
}

// connOf returns the front's state of a connection; nil if it does not use AMQP.
func connOf(c *hub.Conn) *conn {
	a, _ := c.Peer().(*conn)
	return a
}

func (a *conn) end(s *amqp.Session, e *wire.Error) {
	for _, l := range s.End(e) {
		a.Detached(l)
	}
}
