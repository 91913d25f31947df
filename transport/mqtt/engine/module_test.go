package engine_test

import (
	"testing"

	"github.com/hubline-iot/hubline/internal/moduletest"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func TestModules(t *testing.T) {
	moduletest.Run(t, func(creds *transport.Credentials, n netopt.Options) transport.Transport {
		return mqtt.New(&mqtt.Options{Network: n})
	})
}
