package oteltrace_test

import (
	"testing"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/observe/otel/oteltrace"
	"github.com/hubline-iot/hubline/transport/transporttest"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// A transport with spans keeps the contract.
func TestConformance(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				h := hubfixture.New(t)
				tracer := oteltrace.New(sdk.NewTracerProvider(), nil)
				p := h.Pair(t, tracer.Transport(e.make(h.Hub, h.CredsWith(t, ""))))
				p.Features |= hubfixture.Calls
				p.MarksResent = e.name == "mqtt"
				return p
			})
		})
	}
}
