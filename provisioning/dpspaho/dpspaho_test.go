package dpspaho_test

import (
	"testing"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpspaho"
	"github.com/hubline-iot/hubline/provisioning/internal/mqtttest"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func TestCarrier(t *testing.T) {
	mqtttest.Run(t, mqtttest.Engine{Agent: dialer.Agent(""), First: 1, Subscribe: 4094,
		New: func(o *netopt.Options) provisioning.Carrier { return dpspaho.New(o) }})
}
