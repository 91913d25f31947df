package mqttfront

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// next is the dialect of a hub with the MQTT v5 connection profile. Two services act together: a
// broker with sessions, and the hub behind it, which begins to send only after the birth message of
// a connection.
type next struct {
	*Front
	profile *Profile
}

func (next) speaks(level byte) bool { return level == mqtt.V5 }

// identify takes the identity from the client id. The user name must not be empty.
func (next) identify(_ *client, k *mqtt.ConnectPacket) (id identity.Identity, code byte, err error) {
	if err := identity.CheckID("device", k.ClientID); err != nil {
		return id, mqtt.ClientIDNotValid, fmt.Errorf("client id: %w", err)
	}
	id.Device = k.ClientID
	switch {
	case !mqtt.ValidName(k.ClientID):
		return id, mqtt.ClientIDNotValid, fmt.Errorf("client id %q has wildcards of topics", k.ClientID)
	case k.UserName == "":
		return id, mqtt.BadCredentials, errors.New("no user name") // Decision: 0x86, not 0x87
	case k.HasPass && k.Password != "":
		// Decision: 0x86, as for any other credential that the hub does not take.
		return id, mqtt.BadCredentials, errors.New("password, and the profile takes certificates alone")
	}
	if method, ok := k.Properties.Get(mqtt.AuthMethod); ok {
		return id, mqtt.BadAuthMethod, fmt.Errorf("no such authentication method: %q", method.Text)
	}
	return id, 0, nil
}

// authenticate checks the certificate. A port without TLS has none.
func (n next) authenticate(c *client, _ *mqtt.ConnectPacket) (code byte, err error) {
	if c.TLS == nil {
		return mqtt.NotAuthorized, n.hub.Known(c.ID)
	}
	return mqtt.NotAuthorized, n.hub.CertifiedMQTTv5(c.ID, c.PeerChain())
}

// will takes the message of a will. Its topic must be one to which the device may publish messages.
func (n next) will(c *client, w *mqtt.PublishPacket) (m hubdata.Message, code byte, err error) {
	switch {
	case w.QoS > 1:
		return m, mqtt.QoSNotSupported, fmt.Errorf("will with QoS %d", w.QoS)
	case w.Retain:
		return m, mqtt.RetainNotSupported, errors.New("will with RETAIN")
	case w.Topic != nextwire.Up(c.ID.Device, nextwire.FeatureTelemetry) && !n.profile.custom(c.ID, w.Topic):
		return m, mqtt.NotAuthorized, fmt.Errorf("%s may not publish its will to %q", c.ID, w.Topic)
	}
	m = n.messageOf(c, w)
	m.Will = true
	return m, 0, nil
}

func (next) joined(*client) {}

func (n next) keepAlive(k *mqtt.ConnectPacket) time.Duration {
	if own := n.options.KeepAlive; own > 0 {
		return own
	}
	return time.Duration(k.KeepAlive) * time.Second
}

// mayReceive grants one filter.
func (n next) mayReceive(c *client, f mqtt.Filter, _ mqtt.Properties) (code byte, why string) {
	own := nextwire.Filter(c.ID.Device)
	plain, shared, ok := mqtt.Unshare(f.Name)
	switch {
	case !ok || !mqtt.ValidFilter(plain):
		return mqtt.FilterInvalid, fmt.Sprintf("%q is no topic filter", f.Name)
	case shared:
		return mqtt.SharedNotSupported, "no shared subscriptions"
	case f.Name == own:
	case n.profile.NarrowFilters && mqtt.Covers(own, f.Name) && len(c.session.filters) < maxFilters:
	default:
		// Decision: the documents name one subscription, and so does the hub.
		return mqtt.NotAuthorized, fmt.Sprintf("%s may subscribe to %q, not to %q", c.ID, own, f.Name)
	}
	return min(f.QoS, 1), ""
}

// receive sends what waits in the session. It is called right after the CONNACK, and after each
// SUBACK.
func (n next) receive(c *client) {
	if in := c.Fault(fault.EarlyBirthAck); in != nil {
		c.ackEarly()
	}
	n.mu.Lock()
	c.pumpLocked()
	n.mu.Unlock()
	n.hub.Changed.Wake()
}

// acknowledged handles the PUBACK of a message of the hub.
func (n next) acknowledged(c *client, typ byte, a mqtt.AckPacket) error {
	if typ != mqtt.Puback {
		return &mqtt.Error{Code: mqtt.ProtocolError, Text: "acknowledgement of QoS 2 [MQTT-4.3.3]"}
	}
	if c.Fault(fault.DropOnReceipt) != nil {
		c.CutFor(hub.FaultError(fault.DropOnReceipt))
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c.session.queue.acknowledged(c.Number, a.ID)
	c.pumpLocked()
	return nil
}

// published takes what a device sends: to a feature of the hub, or on a custom topic.
func (n next) published(c *client, k *mqtt.PublishPacket) error {
	if size := len(k.Payload); size > hubdata.MaxMessage {
		return &mqtt.Error{Code: mqtt.PacketTooLarge, Text: fmt.Sprintf("message of %d bytes, at most %d are allowed", size,
			hubdata.MaxMessage)}
	}
	feature, own := strings.CutPrefix(k.Topic, nextwire.Up(c.ID.Device, ""))
	switch {
	case own && feature == nextwire.FeatureTelemetry:
		return n.telemetry(c, k)
	case n.profile.custom(c.ID, k.Topic):
		n.store(c, k)
		return nil
	case k.QoS > 0 && n.declared(c, k):
		return nil
	case own && nextFeatures[feature] != nil:
		return n.feature(c, k, nextFeatures[feature])
	case own && !strings.Contains(feature, "/"):
		// Decision: the device may publish there, and nobody listens.
		return c.ignore(k, mqtt.NoSubscribers, errors.New("no such feature"))
	}
	// Decision: a PUBACK with 0x87 refuses a topic without a template.
	return c.ignore(k, mqtt.NotAuthorized, fmt.Errorf("%s may not publish to %q", c.ID, k.Topic))
}

// declared applies the faults of a PUBLISH with QoS 1 that is no telemetry.
func (n next) declared(c *client, k *mqtt.PublishPacket) bool {
	if in := c.brokerFault(fault.DisconnectOnPublish); in != nil {
		n.hub.Happened(in, c.Conn)
		c.end(in.Fault.Code, hub.FaultError(fault.DisconnectOnPublish), &in.Fault)
		return true
	}
	in := c.Fault(fault.RefusePublish)
	if in != nil {
		c.acknowledge(k.ID, time.Time{}, in.Fault.Code, c.reason(in.Fault.Description, ""))
	}
	return in != nil
}

// ignore answers a PUBLISH that nobody handles with a code, and reports why.
func (c *client) ignore(k *mqtt.PublishPacket, code byte, why error) error {
	c.Hub.Event(event.Event{Kind: event.Refused, Name: k.Topic, Code: code, Err: why}, c.Conn)
	if k.QoS == 0 {
		return nil
	}
	var all mqtt.Properties
	if code >= refusedFilter {
		all = c.reason(why.Error(), "")
	}
	c.acknowledge(k.ID, time.Time{}, code, all)
	return nil
}

// A nextHandler handles a message of a type with an id. It calls ack before it answers. An error
// says why the hub ignores the message.
type nextHandler func(n next, c *client, typ string, id nextwire.ID, k *mqtt.PublishPacket, ack func() bool) error

// nextFeatures are the handlers of requests of devices, by the last level of their topics.
var nextFeatures = map[string]nextHandler{
	nextwire.FeaturePresence: next.presence,
	nextwire.FeatureTwin:     next.twin,
	nextwire.FeatureMethods:  next.method,
}

// feature handles a message to a feature. The hub acknowledges and ignores a message that it does
// not understand, and reports it.
func (n next) feature(c *client, k *mqtt.PublishPacket, handle nextHandler) error {
	acked := false
	ack := func() bool {
		if k.QoS > 0 && !acked {
			c.acknowledge(k.ID, time.Time{}, mqtt.Success, nil)
		}
		acked = true
		return c.Mode.Load() == hub.Open
	}
	id, ok := nextwire.ParseID([]byte(k.Properties.Text(mqtt.CorrelationData)))
	err := errors.New("correlation data that is no id of 16 bytes")
	if ok {
		err = handle(n, c, typeOf(k.Properties), id, k, ack)
	}
	if err != nil {
		n.hub.Event(event.Event{Kind: event.Refused, Name: k.Topic, Err: err}, c.Conn)
		ack()
	}
	return nil
}

func typeOf(all mqtt.Properties) string {
	for _, p := range all {
		if p.ID == mqtt.UserProperty && p.Name == nextwire.PropertyType {
			return p.Text
		}
	}
	return ""
}

func errType(typ string) error { return fmt.Errorf("no such type of messages here: %q", typ) }

// signed returns a version as the hub counts it; -1 for one that no twin has.
func signed(version uint64) int64 {
	if version > math.MaxInt64 {
		return -1
	}
	return int64(version)
}
