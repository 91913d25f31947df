package hubfixture

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// Topics returns the topic map of a plain broker with default options. With boxed, messages travel
// in an [Envelope], because MQTT 3.1.1 has no place for most of their fields.
func Topics(boxed bool) *dialect.Topics {
	t := &dialect.Topics{Telemetry: "devices/{device}/up", Commands: []string{"devices/{device}/down/#"}}
	if boxed {
		t.Envelope = Envelope{}
	}
	return t
}

// ModuleTopics is [Topics] for a module.
func ModuleTopics(boxed bool) *dialect.Topics {
	t := Topics(boxed)
	t.Telemetry, t.Commands = "devices/{device}/{module}/up", []string{"devices/{device}/{module}/down/#"}
	return t
}

// NewPlain makes a plain broker with the device "dev-1", closed by t.Cleanup. boxed is as for
// [Topics].
func NewPlain(t testing.TB, o testbroker.BrokerOptions, boxed bool) *Broker {
	h := NewWith(t, &testbroker.Options{Broker: &o})
	h.plain, h.boxed = true, boxed
	return h
}

// An Envelope is a JSON object with the fields of a message.
type Envelope struct{}

var _ dialect.Envelope = Envelope{}

// envelopeStart begins each sealed body.
const envelopeStart = `{"Boxed":true,`

// A box is the JSON object.
type box struct {
	Boxed   bool
	Message transport.Message
}

// Seal puts m into the body of dst.
func (Envelope) Seal(dst, m *transport.Message, _ bool) error {
	dst.Topic, dst.Retain, dst.AtMostOnce = m.Topic, m.Retain, m.AtMostOnce
	body, err := json.Marshal(box{true, *m})
	dst.Body = body
	return err
}

// Open takes m out of its body.
func (Envelope) Open(m *transport.Message) {
	var b box
	if !bytes.HasPrefix(m.Body, []byte(envelopeStart)) || json.Unmarshal(m.Body, &b) != nil {
		return
	}
	topic, retain, again := m.Topic, m.Retain, m.Redelivered
	*m = b.Message
	m.Topic, m.Retain, m.Redelivered = topic, retain, again
}

// OpenLog takes a message of the hub's log out of its body.
func (e Envelope) OpenLog(m *hubdata.Message) {
	in := transport.Message{Body: m.Body}
	e.Open(&in)
	m.MessageID, m.CorrelationID, m.ContentType, m.ContentEncoding = in.ID, in.CorrelationID, in.ContentType,
		in.ContentEncoding
	m.Component, m.ResponseTopic, m.Body = in.Component, in.ResponseTopic, in.Body
	if !in.Created.IsZero() {
		m.CreationTime = in.Created.UTC().Format(timeLayout)
	}
	if !in.Expires.IsZero() {
		m.Expiry = in.Expires.UTC().Format(timeLayout)
	}
	m.Properties = nil
	for _, p := range in.Properties {
		m.Properties = append(m.Properties, hubdata.Property(p))
	}
}

// SealC2D puts a C2D message into its body.
func (e Envelope) SealC2D(m *hubdata.C2D) {
	out := transport.Message{ID: m.MessageID, Body: m.Body}
	for _, p := range m.Properties {
		out.Properties = append(out.Properties, transport.Property(p))
	}
	var sealed transport.Message
	if err := e.Seal(&sealed, &out, false); err != nil {
		panic(err)
	}
	m.Body = sealed.Body
}
