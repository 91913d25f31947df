// Package hubfixture makes hubs for tests: [Open] a plain one, [New] one for the transports'
// conformance suite. A [Sink] records what a session reports.
package hubfixture

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/transporttest"
)

// marks identify testbroker's goroutines by their stacks.
var marks = []string{"hubline/testbroker", "mochi-mqtt/server"}

// WrongKey is valid base64 and not the key of any device.
const WrongKey = "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM="

// Broker is a testbroker with one identity. It implements transporttest.Hub, Inbox, Twins and
// Methods.
type Broker struct {
	*testbroker.Hub
	dev          hubdata.Device
	id           string
	plain, boxed bool // a plain broker, whose messages are in an Envelope

	mu            sync.Mutex
	refusal, held *testbroker.Injected
}

var (
	_ transporttest.Hub         = (*Broker)(nil)
	_ transporttest.SystemInbox = (*Broker)(nil)
	_ transporttest.Twins       = (*Broker)(nil)
	_ transporttest.Methods     = (*Broker)(nil)
)

// New makes a hub with the device "dev-1", closed by t.Cleanup.
func New(t testing.TB) *Broker { return NewWith(t, nil) }

// NewWith is New for a hub with options.
func NewWith(t testing.TB, o *testbroker.Options) *Broker {
	hub, dev := OpenDevice(t, o, "dev-1")
	return &Broker{Hub: hub, dev: dev, id: dev.ID}
}

// BecomeModule makes the identity the module "mod-1" of the device "dev-1". At a hub its messages
// come by Input.
func (h *Broker) BecomeModule(t testing.TB) {
	var err error
	if h.dev, err = h.AddModule("dev-1", "mod-1"); err != nil {
		t.Fatal(err)
	}
	h.id = "dev-1/mod-1"
}

// Input is the input of messages to a module.
const Input = "in"

// Open makes a hub with devices of these ids, closed by t.Cleanup.
func Open(t testing.TB, o *testbroker.Options, ids ...string) *testbroker.Hub {
	t.Helper()
	h, err := testbroker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, id := range ids {
		if _, err := h.AddDevice(id); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// OpenDevice is [Open] for a hub with one device, which it returns.
func OpenDevice(t testing.TB, o *testbroker.Options, id string) (*testbroker.Hub, hubdata.Device) {
	t.Helper()
	h := Open(t, o)
	dev, err := h.AddDevice(id)
	if err != nil {
		t.Fatal(err)
	}
	return h, dev
}

// CredsWith returns the identity's credentials with this key, or its own if key is empty.
func (h *Broker) CredsWith(t testing.TB, key string) *transport.Credentials {
	if key == "" {
		key = h.dev.PrimaryKey
	}
	sign, err := transport.SharedKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := &transport.Credentials{Host: h.dev.HostName, DeviceID: h.dev.ID, ModuleID: h.dev.ModuleID, Sign: sign}
	if h.plain {
		c.UserName = h.id
	}
	return c
}

// Calls are the features of the hub besides messages.
const Calls = transport.FeatureMethods | transport.FeatureDesired | transport.FeatureTwin

// Pair returns the suite's input for the given transport and this hub. Transports that support
// Calls add them to its Features.
func (h *Broker) Pair(t testing.TB, tr transport.Transport) *transporttest.Pair {
	p := &transporttest.Pair{
		Transport: tr, Creds: h.CredsWith(t, ""), WrongCreds: h.CredsWith(t, WrongKey), Hub: h,
		HubMarks: marks, Features: transport.FeatureMessages, MarksResent: true, MarksRedelivered: true, System: true,
	}
	if h.plain {
		p.Topic = "devices/" + h.id + "/up/other"
		p.System = !h.boxed // boxed takes everything, in its body
		p.Lacks = transporttest.LacksAll()
		p.WholeSeconds = !h.boxed // in MQTT 5
		p.MarksResent = h.boxed   // MQTT 5 sets DUP only within a session
	}
	return p
}

func (h *Broker) Received() []transporttest.Received {
	var out []transporttest.Received
	for _, m := range h.Messages() {
		if h.boxed {
			Envelope{}.OpenLog(&m)
		}
		r := transporttest.Received{Resent: m.Dup, Message: transport.Message{
			ID: m.MessageID, CorrelationID: m.CorrelationID, ContentType: m.ContentType, ContentEncoding: m.ContentEncoding,
			Component: m.Component,
			Created:   moment(m.CreationTime), Expires: moment(m.Expiry), Body: m.Body, Output: m.Output,
			System: &transport.SystemProperties{
				To: m.To, UserID: m.UserID, Schema: m.Schema, InterfaceID: m.InterfaceID,
				ConnectionDeviceID: m.ConnectionDeviceID, ConnectionModuleID: m.ConnectionModuleID,
				DiagnosticID: m.DiagnosticID, DiagnosticContext: m.DiagnosticContext,
			},
		}}
		if h.plain {
			r.Topic, r.ResponseTopic, r.Retain, r.AtMostOnce = m.Topic, m.ResponseTopic, m.Retain, m.QoS == 0
		}
		for _, p := range m.Properties {
			r.Properties = append(r.Properties, transport.Property(p))
		}
		out = append(out, r)
	}
	return out
}

// timeLayout is how moment expects times.
const timeLayout = time.RFC3339Nano

func moment(s string) time.Time {
	t, err := time.Parse(timeLayout, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

func (h *Broker) HoldAnswers(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if on {
		h.held = h.Inject(fault.Fault{Kind: fault.SlowPuback, Times: -1, Delay: 20 * time.Second})
	} else {
		h.held.Remove()
	}
}

func (h *Broker) Cut() { h.Drop("") }

func (h *Broker) Silence() { h.Inject(fault.Fault{Kind: fault.HalfOpen}).Remove() }

func (h *Broker) Refuse(r transporttest.Refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refusal != nil {
		h.refusal.Remove()
		h.refusal = nil
	}
	switch r {
	case transporttest.RefusalUnreachable:
		h.refusal = h.Inject(fault.Fault{Kind: fault.Absent})
	case transporttest.RefusalMute:
		h.refusal = h.Inject(fault.Fault{Kind: fault.SwallowConnack, Times: -1})
	case transporttest.RefusalUnavailable:
		h.refusal = h.Inject(fault.Fault{Kind: fault.RefuseConnect, Times: -1})
	case transporttest.RefusalNone:
	}
}

func (h *Broker) Deliver(body string) { h.DeliverMessage(&transport.Message{Body: []byte(body)}) }

func (h *Broker) DeliverMessage(m *transport.Message) {
	c := hubdata.C2D{
		MessageID: m.ID, CorrelationID: m.CorrelationID, ContentType: m.ContentType, ContentEncoding: m.ContentEncoding,
		Component: m.Component, CreationTime: m.Created, Expiry: m.Expires, Body: m.Body,
	}
	if p := m.System; p != nil {
		c.To, c.UserID, c.Schema, c.InterfaceID = p.To, p.UserID, p.Schema, p.InterfaceID
		c.ConnectionDeviceID, c.ConnectionModuleID = p.ConnectionDeviceID, p.ConnectionModuleID
		c.DiagnosticID, c.DiagnosticContext = p.DiagnosticID, p.DiagnosticContext
	}
	for _, p := range m.Properties {
		c.Properties = append(c.Properties, hubdata.Property(p))
	}
	var err error
	if h.hasInputs() {
		err = h.SendInput(h.id, Input, c)
	} else {
		err = h.SendC2D(h.id, c)
	}
	if err != nil {
		panic(err)
	}
}

// hasInputs reports whether the identity is a module at a hub.
func (h *Broker) hasInputs() bool { return h.dev.ModuleID != "" && !h.plain }

func (h *Broker) Input() string {
	if h.hasInputs() {
		return Input
	}
	return ""
}

func (h *Broker) PatchDesired(patch string) {
	if _, err := h.Hub.PatchDesired(h.id, patch); err != nil {
		panic(err)
	}
}

func (h *Broker) Reported() string {
	twin, err := h.Twin(h.id)
	if err != nil {
		panic(err)
	}
	return string(twin.Reported)
}

func (h *Broker) Call(name, body string) (status int, answer string, err error) {
	r, err := h.CallMethod(context.Background(), h.id, hubdata.MethodCall{Name: name, Payload: []byte(body)})
	return r.Status, string(r.Payload), err
}

func (h *Broker) Undelivered() int {
	if h.hasInputs() {
		return h.CountInputs(h.id, hubdata.C2DEnqueued) + h.CountInputs(h.id, hubdata.C2DInvisible)
	}
	return h.CountC2D(h.id, hubdata.C2DEnqueued) + h.CountC2D(h.id, hubdata.C2DInvisible)
}
