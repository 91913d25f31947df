package http_test

import (
	"net"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/transporttest"
)

type connection = net.Conn

// hubMarks identify the goroutines of a scripted hub by their stacks.
var hubMarks = []string{"net/http.(*conn)", "net/http.(*connReader)", "net/http.(*Server)"}

// The conformance suite with the scripted hub.
func TestConformanceScripted(t *testing.T) {
	for _, v := range []struct {
		name string
		opt  http.Options
	}{
		{"batches", http.Options{}},
		{"a message a request", http.Options{Batch: 1}},
	} {
		t.Run(v.name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				h := newScripted(t)
				opt := v.opt
				opt.Network.Plaintext, opt.Network.Dial, opt.PollInterval = true, h.network.DialContext, time.Second
				return &transporttest.Pair{
					Transport: http.New(&opt), Creds: h.creds(goodKey), WrongCreds: h.creds(badKey), Hub: h, HubMarks: hubMarks,
					Features: transport.FeatureMessages, MarksRedelivered: true, NoOrder: true, System: true, Lacks: lacks,
				}
			})
		})
	}
}
