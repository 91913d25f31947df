package mqttfront

import (
	"fmt"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
)

const (
	// maxKeepAlive is the longest keep-alive.
	maxKeepAlive = 1178 * time.Second
	// maxFilters is how many topic filters one client may have.
	maxFilters = 5
)

// service is the dialect of the service: MQTT 3.1.1 on its topics.
type service struct{ *Front }

func (service) speaks(level byte) bool { return level == mqtt.V311 }

// identify takes the identity from the user name. The client id must be the same.
func (service) identify(c *client, k *mqtt.ConnectPacket) (id identity.Identity, code byte, err error) {
	if c.user, err = parseUserName(k.UserName); err != nil {
		return c.user.id, mqtt.BadCredentials, err
	}
	if id = c.user.id; k.ClientID != id.String() {
		return id, mqtt.ClientIDNotValid, fmt.Errorf("client id %q is not that of the user name, %q", k.ClientID, id)
	}
	return id, 0, nil
}

// authenticate checks the token, or without one the certificate, and whether a gateway has room.
func (f service) authenticate(c *client, k *mqtt.ConnectPacket) (code byte, err error) {
	h := f.hub
	if k.Password == "" {
		if err := h.Certified(c.user.host, c.ID, c.PeerChain()); err != nil {
			return mqtt.NotAuthorized, err
		}
	} else {
		tok, err := identity.ParseToken(k.Password)
		if err != nil {
			return mqtt.BadCredentials, err
		}
		if err := h.Authorize(c.user.host, c.ID, tok); err != nil {
			return mqtt.NotAuthorized, err
		}
		c.until = tok.Deadline(h.ConnectionGrace)
	}
	if h.Full(c.ID) {
		return mqtt.ServerUnavailable, hub.ErrClients
	}
	return 0, nil
}

func (service) will(c *client, w *mqtt.PublishPacket) (m hubdata.Message, code byte, err error) {
	if w.QoS > 1 {
		return m, 0, fmt.Errorf("will with QoS %d", w.QoS)
	}
	if m, err = telemetryOf(c, w); err != nil {
		return m, 0, fmt.Errorf("will: %w", err)
	}
	m.Properties = append(m.Properties, hubdata.Property{Name: "iothub-MessageType", Value: "Will"})
	return m, 0, nil
}

func (f service) joined(c *client) { f.hub.AnnounceModel(c.ID, c.user.param("model-id")) }

func (f service) keepAlive(k *mqtt.ConnectPacket) time.Duration {
	longest := maxKeepAlive
	if g := f.hub.Gateway; g != nil {
		longest = g.KeepAlive
	}
	if k.KeepAlive == 0 {
		return longest
	}
	return min(time.Duration(k.KeepAlive)*time.Second, longest)
}

func (f service) mayReceive(c *client, s mqtt.Filter, _ mqtt.Properties) (code byte, why string) {
	_, again := c.session.filters[s.Name]
	switch {
	case !grants(c.ID, s.Name) && (f.hub.Gateway == nil || s.Name != bareFilter(c.ID)),
		s.Name == credentialsFilter && !c.issues(),
		!again && len(c.session.filters) >= maxFilters:
		return mqtt.NotAuthorized, "the hub has no such topics for this identity"
	}
	return min(s.QoS, 1), ""
}

// grants reports whether the service grants a filter to this identity.
func grants(id identity.Identity, filter string) bool {
	switch filter {
	case twinResultFilter, desiredFilter, methodFilter, credentialsFilter, hub.Prefix(id, hub.Commands) + "#":
		return true
	}
	if name, ok := strings.CutPrefix(filter, methodTopic); ok {
		name, ok = strings.CutSuffix(name, "/#")
		return ok && name != "" && !strings.ContainsAny(name, "/+#")
	}
	return id.Module != "" && (filter == id.Resource()+"/#" || filter == hub.Prefix(id, hub.Inputs)+"#")
}

// published takes the requests of a device and its telemetry. MQTT 3.1.1 has no answer to others.
func (f service) published(c *client, k *mqtt.PublishPacket) error {
	if strings.HasPrefix(k.Topic, requestTopics) {
		return f.request(c, k)
	}
	m, err := telemetryOf(c, k)
	if err != nil {
		return err
	}
	if n := telemetry.SizeOf(&m); n > hubdata.MaxMessage {
		return fmt.Errorf("message of %d bytes, at most %d are allowed", n, hubdata.MaxMessage)
	}
	if k.Retain {
		m.Properties = append(m.Properties, hubdata.Property{Name: "mqtt-retain", Value: "true"})
	}
	if !f.order(c, m) {
		c.publish(m)
	}
	return nil
}

// telemetryOf makes a message of a PUBLISH or a will.
func telemetryOf(c *client, k *mqtt.PublishPacket) (hubdata.Message, error) {
	m, err := parseTelemetry(c.ID, k.Topic)
	m.Protocol, m.Connection = hubdata.MQTT, c.Number
	m.Body, m.QoS, m.PacketID, m.Dup = k.Payload, k.QoS, k.ID, k.Dup
	return m, err
}

func (service) methodTarget(c *client, name string) hub.MethodTarget {
	if c.hearsLocked(methodFilter, methodTopic+methodSegment(name)+"/#") {
		return methodTarget{c}
	}
	return nil
}

func (service) desiredListener(c *client) hub.DesiredListener {
	if c.hearsLocked(desiredFilter) {
		return desiredListener{c}
	}
	return nil
}
