package http_test

import (
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/transporttest"
)

// lacks are the fields of a message that HTTPS has no place for.
var lacks = []string{"Output", "System.DiagnosticID", "System.DiagnosticContext"}

// hubMarks identify the goroutines of a hub by their stacks.
var hubMarks = []string{"net/http.(*conn)", "net/http.(*connReader)", "net/http.(*Server)"}

// The conformance suite with the hub emulator, in every configuration.
func TestConformance(t *testing.T) {
	for _, way := range []struct {
		name   string
		module bool
		opt    func(h *hubfixture.Broker) http.Options
	}{
		{"plain", false, func(h *hubfixture.Broker) http.Options {
			return http.Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortHTTP)}}
		}},
		{"a message a request", false,
			func(h *hubfixture.Broker) http.Options {
				return http.Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortHTTP)}, Batch: 1}
			}},
		{"TLS", false, func(h *hubfixture.Broker) http.Options {
			return http.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortHTTPS), TLS: h.ClientTLS()}}
		}},
		{"HTTP/2", false, func(h *hubfixture.Broker) http.Options {
			return http.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortHTTPS), TLS: h.ClientTLS()}, HTTP2: true}
		}},
		{"module", true, func(h *hubfixture.Broker) http.Options {
			return http.Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortHTTP)}}
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				h := hubfixture.New(t)
				if way.module {
					h.BecomeModule(t)
				}
				opt := way.opt(h)
				opt.PollInterval = time.Second
				p := h.Pair(t, http.New(&opt))
				p.MarksResent, p.NoOrder = false, true
				p.Lacks = lacks
				p.HubMarks = append(p.HubMarks, hubMarks...)
				if way.module {
					p.Features = 0
				}
				return p
			})
		})
	}
}
