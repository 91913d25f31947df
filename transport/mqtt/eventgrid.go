package mqtt

import "github.com/hubline-iot/hubline/transport/mqtt/dialect"

// eventGrid has the limits of "Quotas and limits", section "MQTT limits in namespace", and of
// "Event Grid namespace as an Event Grid source" for the names.
var eventGrid = service{
	Name: "Event Grid", ClientID: 128, UserName: 128, Runes: true, Topic: 256, Levels: 8, Filters: 10, Size: 512 << 10,
}

// EventGrid returns the dialect of the MQTT broker of an Azure Event Grid namespace for the topics
// that its topic spaces and permission bindings allow. A client id or user name of more than 128
// characters, a topic or filter of more than 256 bytes or 8 levels, and more than 10 filters make a
// dial or that message fail with Kind Invalid. A message of more than 512 KB fails with TooLarge.
//
//	creds := &transport.Credentials{
//		Host:     "ns-1.westeurope-1.ts.eventgrid.azure.net",
//		DeviceID: "boiler-7",          // the client id, which names the session
//		UserName: "boiler-7-authn-ID", // the client's authentication name
//	}
//	t := mqtt.New(&mqtt.Options{
//		Dialect: mqtt.EventGrid(mqtt.Topics{
//			Telemetry: "site/7/{device}/up",
//			Commands:  []string{"site/7/{device}/down"},
//		}),
//		Network: netopt.Options{Certificate: netopt.CertificateFiles("cert.pem", "key.pem")},
//	})
//
// The certificate authenticates the client on port 8883. UserName may be empty if the namespace
// takes the name from the certificate. Port 443 has WebSocket: package websocket. A token of
// Microsoft Entra ID goes by the enhanced authentication of MQTT 5, with the method "OAUTH2-JWT".
//
// The service has QoS 0 and 1, MQTT 3.1.1 and 5, wills, retained messages and ten topic aliases. It
// does not promise the order of messages, refuses user properties in CONNECT, and takes a
// keep-alive of up to 1160 s. It has at most one session per authentication name unless the
// namespace allows more, so the client id has to stay the same.
//
// Sources: Azure Event Grid documentation, "MQTT features support" (ports, CONNECT, differences
// from the specification), "MQTT client authentication", "Quotas and limits" (MQTT limits in
// namespaces), "Support for MQTT Retain", "Event Grid namespace as an Event Grid source".
func EventGrid(t Topics) dialect.Dialect { return eventGrid.dialect(&t) }
