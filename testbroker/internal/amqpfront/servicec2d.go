package amqpfront

import (
	"errors"
	"strings"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// A c2dSender is a link on which a back end sends C2D messages.
type c2dSender struct{ serviceEnd }

func c2dNode(s serviceEnd) backLink { return &c2dSender{s} }

// message queues a C2D message, unless a fault intervenes. The outcome says whether it was queued.
func (s *c2dSender) message(d amqp.Delivery) error {
	if s.link.conn.messageFaults(s.link, d) {
		return nil
	}
	if err := s.send(d); err != nil || !s.link.conn.detachAfterMessage(s.link) {
		s.link.settle(d, err)
	}
	return nil
}

func (s *c2dSender) send(d amqp.Delivery) *wire.Error {
	m, bad := readMessage(d)
	if bad != nil {
		return bad
	}
	c2d, err := c2dOf(m)
	if err != nil {
		return asWire(err)
	}
	id, bad := s.receiver(m)
	if bad != nil {
		return bad
	}
	if err := s.link.conn.hub.SendC2D(id.String(), c2d); err != nil {
		return c2dRefusal(err)
	}
	return nil
}

// receiver returns the device or module in the property "to".
func (s *c2dSender) receiver(m *wire.Message) (identity.Identity, *wire.Error) {
	if m.Properties == nil || m.Properties.To.V == "" {
		return identity.Identity{}, wire.Errorf(wire.InvalidField, "message without the property to; set it to "+
			"/devices/{device}/messages/devicebound")
	}
	to := m.Properties.To.V
	path, err := s.link.conn.front.pathOf(to)
	if err != nil {
		return identity.Identity{}, asWire(err)
	}
	id, rest, ok := s.link.conn.hub.IdentityOf(path)
	if !ok || !strings.EqualFold(rest, "messages/devicebound") {
		return identity.Identity{}, wire.Errorf(wire.InvalidField, "property to %q; set it to "+
			"/devices/{device}/messages/devicebound", to)
	}
	return id, nil
}

func c2dOf(m *wire.Message) (hubdata.C2D, error) {
	t, err := telemetryOf(m)
	if err != nil {
		return hubdata.C2D{}, err
	}
	c := hubdata.C2D{
		MessageID: t.MessageID, CorrelationID: t.CorrelationID, UserID: t.UserID, ContentType: t.ContentType,
		ContentEncoding: t.ContentEncoding, Schema: t.Schema, InterfaceID: t.InterfaceID, Component: t.Component,
		DiagnosticID: t.DiagnosticID, DiagnosticContext: t.DiagnosticContext, Body: t.Body,
	}
	if t.CreationTime != "" {
		if c.CreationTime, err = time.Parse(time.RFC3339Nano, t.CreationTime); err != nil {
			return c, wire.Errorf(wire.InvalidField, "iothub-creation-time-utc %q; write it as %s", t.CreationTime,
				document.TimeLayout)
		}
	}
	// Some clients send the zero time of their language, which lies before 1970, for no expiry.
	if p := m.Properties; p != nil && int64(p.AbsoluteExpiryTime.V) > 0 {
		c.Expiry = time.UnixMilli(int64(p.AbsoluteExpiryTime.V)).UTC()
	}
	for _, p := range t.Properties {
		if p.Name == "iothub-ack" {
			c.Ack = strings.ToLower(p.Value)
		} else {
			c.Properties = append(c.Properties, p)
		}
	}
	return c, nil
}

// c2dRefusals maps the hub's errors to those of back ends, in the order of the checks.
var c2dRefusals = []struct {
	err       error
	condition wire.Symbol
	code      string
}{
	{hub.ErrNotFound, wire.NotFound, "404001 DeviceNotFound"},
	{hub.ErrQueueFull, wire.ResourceLimitExceeded, "403004 DeviceMaximumQueueDepthExceeded"},
	{faults.ErrQuota, wire.ResourceLimitExceeded, "403002 IotHubQuotaExceeded"},
	{hub.ErrTooLarge, wire.MessageSizeExceeded, "413001 MessageTooLarge"},
	{hub.ErrClosed, wire.InternalError, "503001 ServiceUnavailable"},
	{nil, wire.InvalidField, "400004 ArgumentInvalid"},
}

func c2dRefusal(err error) *wire.Error {
	text := strings.TrimPrefix(err.Error(), "testbroker: ")
	for _, r := range c2dRefusals {
		if r.err == nil || errors.Is(err, r.err) {
			return wire.Errorf(r.condition, "%s: %s", r.code, text)
		}
	}
	return nil
}
