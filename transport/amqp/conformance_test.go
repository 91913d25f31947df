package amqp_test

import (
	"testing"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/transporttest"
)

// pair returns the pair for the suite. AMQP has no mark for messages that are sent again.
func pair(t testing.TB, h *hubfixture.Broker, o *amqp.Options, mux bool) *transporttest.Pair {
	p := h.Pair(t, amqp.New(o))
	if mux {
		p.Transport = amqp.NewMux(o)
	}
	p.Features |= hubfixture.Calls
	p.MarksResent = false
	p.HubMarks = append(p.HubMarks, "hubline/testbroker/")
	return p
}

// TestConformance runs the suite with each method of authentication.
func TestConformance(t *testing.T) {
	for _, way := range []struct {
		name        string
		module, mux bool
		hub         *testbroker.Options
		opt         func(h *hubfixture.Broker) *amqp.Options
	}{
		{"plain", false, false, nil, func(h *hubfixture.Broker) *amqp.Options {
			return &amqp.Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortAMQP)}}
		}},
		{"TLS", false, false, nil, func(h *hubfixture.Broker) *amqp.Options {
			return &amqp.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortAMQPS), TLS: h.ClientTLS()}}
		}},
		{"module", true, false, nil, func(h *hubfixture.Broker) *amqp.Options {
			return &amqp.Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortAMQP)}}
		}},
		{"SASL PLAIN", false, false, nil, func(h *hubfixture.Broker) *amqp.Options {
			return &amqp.Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortAMQP)},
				Auth: amqp.AuthPlain}
		}},
		{"mux", false, true, nil, func(h *hubfixture.Broker) *amqp.Options {
			return &amqp.Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortAMQP)}}
		}},
		{"module on a mux", true, true, nil, func(h *hubfixture.Broker) *amqp.Options {
			return &amqp.Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortAMQP)}}
		}},
		{"flows without next-incoming-id", false, false,
			&testbroker.Options{AMQP: testbroker.AMQPOptions{OmitNextIncomingID: true}},
			func(h *hubfixture.Broker) *amqp.Options {
				return &amqp.Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortAMQP)}}
			}},
		{"module on a mux, flows without next-incoming-id", true, true,
			&testbroker.Options{AMQP: testbroker.AMQPOptions{OmitNextIncomingID: true, SessionWindow: 10}},
			func(h *hubfixture.Broker) *amqp.Options {
				return &amqp.Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortAMQP)}}
			}},
	} {
		t.Run(way.name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				h := hubfixture.NewWith(t, way.hub)
				if way.module {
					h.BecomeModule(t)
				}
				return pair(t, h, way.opt(h), way.mux)
			})
		})
	}
}
