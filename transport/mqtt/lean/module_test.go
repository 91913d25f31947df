package lean_test

import (
	"testing"

	"github.com/hubline-iot/hubline/internal/moduletest"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/mqtt/lean/leannet"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func TestModules(t *testing.T) {
	moduletest.Run(t, func(creds *transport.Credentials, n netopt.Options) transport.Transport {
		return lean.New(leannet.Dialer(creds, &n), nil)
	})
}
