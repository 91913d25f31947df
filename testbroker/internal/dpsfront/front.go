// Package dpsfront has the fronts of the provisioning service: MQTT 3.1.1, AMQP 1.0 and HTTPS.
package dpsfront

import (
	"net"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// New returns the fronts of a service. The front of HTTPS has more routes, too.
func New(s *dps.Service, network *hub.Hub, more []web.Route) map[hubdata.Protocol]hub.Front {
	return map[hubdata.Protocol]hub.Front{
		hubdata.MQTT: &mqttFront{front: front{s}, current: make(map[string]*client)},
		hubdata.AMQP: &amqpFront{front{s}},
		hubdata.HTTP: web.New(network, slices.Concat(deviceRoutes(s), serviceRoutes(s), more)),
	}
}

// front is what MQTT and AMQP share: the service calls no devices and keeps no sessions.
type front struct{ dps *dps.Service }

func (*front) Below(c *hub.Conn) (net.Conn, []string) { return c.Raw, nil }

func (*front) MethodTarget(identity.Identity, string) hub.MethodTarget { return nil }

func (*front) DesiredListeners(identity.Identity) []hub.DesiredListener { return nil }

func (*front) Forget(string) {}

func (*front) Shutdown() error { return nil }
