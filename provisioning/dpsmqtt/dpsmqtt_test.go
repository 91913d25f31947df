package dpsmqtt_test

import (
	"testing"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/provisioning/internal/mqtttest"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func TestCarrier(t *testing.T) {
	mqtttest.Run(t, mqtttest.Engine{Agent: "Hubline", First: 2, Subscribe: 1,
		New: func(o *netopt.Options) provisioning.Carrier { return dpsmqtt.New(o) }})
}
