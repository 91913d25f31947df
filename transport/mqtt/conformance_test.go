package mqtt

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/transporttest"
)

func TestConformanceWithTheHub(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) *transporttest.Pair { return newPair(t, false) })
}

func TestConformanceWithTheHubOverTLS(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) *transporttest.Pair { return newPair(t, true) })
}

// hubMarks are in the stacks of testbroker's goroutines.
var hubMarks = []string{"hubline/testbroker.", "mochi-mqtt/server"}

// newPair makes a hub with one device. It must be called in a bubble.
func newPair(t testing.TB, secure bool) *transporttest.Pair {
	h := new(brokerHub)
	var err error
	h.hub, err = testbroker.New(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.hub.Close()) })
	dev, err := h.hub.AddDevice("dev-1")
	require.NoError(t, err)
	o := &Options{Plaintext: !secure}
	o.Dial = h.hub.Dial
	if secure {
		o.Dial, o.TLS = h.hub.DialTLSPort, h.hub.ClientTLS()
	}
	return &transporttest.Pair{
		Transport: New(o), Creds: credsOf(t, dev, dev.PrimaryKey), WrongCreds: credsOf(t, dev, testKey), Hub: h,
		HubMarks: hubMarks, Features: transport.Messages, MarksAgain: true,
	}
}

func credsOf(t testing.TB, dev testbroker.Device, key string) *transport.Credentials {
	sign, err := transport.SharedKey(key)
	require.NoError(t, err)
	return &transport.Credentials{Host: dev.HostName, DeviceID: dev.ID, ModuleID: dev.ModuleID, Sign: sign}
}

// brokerHub is testbroker in the hands of the suite.
type brokerHub struct {
	hub *testbroker.Hub

	mu            sync.Mutex
	refusal, held *testbroker.Injected
}

func (h *brokerHub) Received() []transporttest.Received {
	var out []transporttest.Received
	for _, m := range h.hub.Messages() {
		r := transporttest.Received{Again: m.Dup, Message: transport.Message{
			ID: m.MessageID, CorrelationID: m.CorrelationID, ContentType: m.ContentType, ContentEncoding: m.ContentEncoding,
			Created: parseTime(m.CreationTime), Expires: parseTime(m.Expiry), Body: m.Body,
		}}
		for _, p := range m.Properties {
			r.Properties = append(r.Properties, transport.Property(p))
		}
		out = append(out, r)
	}
	return out
}

func (h *brokerHub) HoldAnswers(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if on {
		h.held = h.hub.Inject(testbroker.Fault{Kind: testbroker.DelayPuback, Times: -1, Delay: 20 * time.Second})
	} else {
		h.held.Remove()
	}
}

func (h *brokerHub) Cut() { h.hub.Drop("") }

func (h *brokerHub) Silence() { h.hub.Inject(testbroker.Fault{Kind: testbroker.HalfOpen}).Remove() }

func (h *brokerHub) Refuse(r transporttest.Refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refusal != nil {
		h.refusal.Remove()
		h.refusal = nil
	}
	switch r {
	case transporttest.Unreachable:
		h.refusal = h.hub.Inject(testbroker.Fault{Kind: testbroker.Absent})
	case transporttest.Mute:
		h.refusal = h.hub.Inject(testbroker.Fault{Kind: testbroker.NoConnack, Times: -1})
	case transporttest.Unavailable:
		h.refusal = h.hub.Inject(testbroker.Fault{Kind: testbroker.RefuseConnect, Times: -1})
	}
}
