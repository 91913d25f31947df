// Package dpsmqtt carries registrations with the provisioning service over MQTT 3.1.1 with TLS, and
// over WebSocket:
//
//	client, err := provisioning.New(id, dpsmqtt.New(nil), nil)
//	client, err := provisioning.New(id, dpsmqtt.New(&netopt.Options{Tunnel: websocket.MQTT(nil)}), nil)
//
// It is the engine of provisioning/dpsengine on sockets. The device may use any transport at its
// hub afterwards.
//
// netopt.Options.Certificate authenticates an Identity without keys, as for package
// provisioning/dpshttp.
package dpsmqtt

import (
	"github.com/hubline-iot/hubline/provisioning/dpsengine"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// New returns a Carrier with these network settings, which are copied; nil means all defaults: TLS
// to port 8883. Each Open reports wrong settings, with Kind Invalid. Several clients may share the
// Carrier.
func New(o *netopt.Options) *dpsengine.Carrier {
	var network netopt.Options
	if o != nil {
		network = *o
	}
	info := network.ProductInfo
	network.ProductInfo = ""
	return dpsengine.New(mqtt.Dialer(&network), &dpsengine.Options{ProductInfo: info})
}
