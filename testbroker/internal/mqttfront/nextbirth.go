package mqttfront

import (
	"encoding/hex"
	"sync"
	"sync/atomic"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// A nextClient is what the hub knows of a connection since its birth message.
type nextClient struct {
	born atomic.Bool // the hub may send

	mu      sync.Mutex // guards the fields below, and additions to sends; never held over a write or an event
	nonce   nextwire.ID
	desired int64 // the version that the birth-ack named

	sends keep.Relay[dispatch] // birth-acks, and what follows them about the twin, in order
}

// presence handles a birth: it answers with the versions of the twin, then pushes the sections that
// the device wants and has not got. A later birth of the connection replaces the first.
func (n next) presence(c *client, typ string, nonce nextwire.ID, k *mqtt.PublishPacket, ack func() bool) error {
	var b nextwire.Birth
	if typ != nextwire.TypeBirth {
		return errType(typ)
	}
	if err := nextwire.Decode(k.Payload, &b); err != nil {
		return err
	}
	if !ack() {
		return nil
	}
	if err := c.bear(nonce, &b); err != nil {
		return err
	}
	n.mu.Lock()
	c.session.seen.Nonce = hex.EncodeToString(nonce[:])
	n.mu.Unlock()
	c.send()
	n.hub.Changed.Wake()
	return nil
}

// bear notes the birth of a connection, and what is to be sent for it.
func (c *client) bear(nonce nextwire.ID, b *nextwire.Birth) error {
	s := &c.next
	s.mu.Lock()
	defer s.mu.Unlock()
	// From here on a change has a listener, unless the twin that is read next has it.
	s.nonce = nonce
	s.born.Store(true)
	t, err := c.Hub.Twin(c.ID.String())
	if err != nil { // removed meanwhile
		return err
	}
	s.desired = t.DesiredVersion
	s.sends.Add(birthAck(nonce, t))
	if push := pushOf(b, t); push != nil {
		s.sends.Add(dispatch{feature: nextwire.FeatureTwin, typ: nextwire.TypeTwinPush, id: nonce, message: push})
	}
	return nil
}

// send sends what is to be sent, in order.
func (c *client) send() { c.next.sends.Deliver(func(d dispatch) { c.dispatch(d) }) }

func birthAck(nonce nextwire.ID, t hubdata.Twin) dispatch {
	return dispatch{
		feature: nextwire.FeaturePresence, typ: nextwire.TypeBirthAck, id: nonce,
		message: &nextwire.BirthAck{DesiredVersion: uint64(t.DesiredVersion), ReportedVersion: uint64(t.ReportedVersion)},
	}
}

// pushOf returns the push that follows a birth; nil if there is none.
func pushOf(b *nextwire.Birth, t hubdata.Twin) *nextwire.TwinPush {
	var p nextwire.TwinPush
	if b.PushDesired && b.DesiredVersion != uint64(t.DesiredVersion) {
		p.Desired = &nextwire.Section{Version: uint64(t.DesiredVersion), Payload: t.Desired}
	}
	if b.PushReported && b.ReportedVersion != uint64(t.ReportedVersion) {
		p.Reported = &nextwire.Section{Version: uint64(t.ReportedVersion), Payload: t.Reported}
	}
	if p.Desired == nil && p.Reported == nil {
		return nil
	}
	return &p
}

// ackEarly sends a birth-ack before the client has subscribed.
func (c *client) ackEarly() {
	nonce, _, _ := nextwire.ParseUserName(c.connect.UserName)
	if t, err := c.Hub.Twin(c.ID.String()); err == nil {
		c.Write(mqtt.EncodePublish(mqtt.V5, birthAck(nonce, t).packet(c.ID.Device)))
	}
}

func (next) desiredListener(c *client) hub.DesiredListener {
	if _, ok := c.grantedLocked(nextwire.Down(c.ID.Device, nextwire.FeatureTwin)); ok && c.next.born.Load() {
		return nextListener{c}
	}
	return nil
}

// A nextListener is a client that gets changes of desired properties.
type nextListener struct{ c *client }

func (l nextListener) Client() *hub.Conn { return l.c.Conn }

// Tell sends a change, unless the birth-ack has named its version or a later one.
func (l nextListener) Tell(ch hub.Change) {
	s := &l.c.next
	s.mu.Lock()
	if ch.Version > s.desired {
		s.sends.Add(dispatch{
			feature: nextwire.FeatureTwin, typ: nextwire.TypeDesiredPatch, id: s.nonce,
			message: &nextwire.DesiredPatch{Version: uint64(ch.Version), Payload: document.JSON(ch.Patch)},
		})
	}
	s.mu.Unlock()
	l.c.send()
}
