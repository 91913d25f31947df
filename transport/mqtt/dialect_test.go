package mqtt

import (
	"context"
	"net"
	"testing"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/brokertest"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func TestBroker(t *testing.T) {
	brokertest.Run(t, brokertest.Engine{New: func(dial brokertest.Dial, o brokertest.Options) transport.Transport {
		return New(&Options{Dialect: o.Dialect, Will: o.Will, CleanSession: o.CleanSession, AtMostOnce: o.AtMostOnce,
			Network: netopt.Options{Plaintext: true,
				Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}})
	}})
}
