package mqtt

import (
	"crypto/tls"
	"net"
	"strings"

	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Names for TLS's protocol negotiation (ALPN), which on port 443 select the protocol and the
// authentication: "Device communication protocols".
const (
	// AWSIoTCertificate is MQTT with a client certificate.
	AWSIoTCertificate = "x-amzn-mqtt-ca"
	// AWSIoTCustom is MQTT with a custom authorizer, which gets user name and password.
	AWSIoTCustom = "mqtt"
)

// awsIoT has the limits of "AWS IoT Core endpoints and quotas".
var awsIoT = service{
	Name: "AWS IoT Core", ClientID: 128, Topic: 256, Levels: 8, Filters: 8, Size: 128 << 10, Counted: withoutIngest,
}

// withoutIngest returns the part of a topic that its limits are for: the prefix $aws/rules/NAME/ of
// Basic Ingest is free.
func withoutIngest(topic string) string {
	if rest, ok := strings.CutPrefix(topic, "$aws/rules/"); ok {
		if _, rest, ok := strings.Cut(rest, "/"); ok {
			return rest
		}
	}
	return topic
}

// AWSIoT returns the dialect of AWS IoT Core for the topics that the device's policies allow. A
// client id of more than 128 bytes, a topic or filter of more than 256 bytes or 8 levels, and more
// than 8 filters make a dial or that message fail with Kind Invalid. A message of more than 128 KB
// fails with TooLarge.
//
//	creds := &transport.Credentials{Host: endpoint, DeviceID: thing}
//	t := mqtt.New(&mqtt.Options{
//		Dialect: mqtt.AWSIoT(mqtt.Topics{
//			Telemetry: "site/7/{device}/up",
//			Commands:  []string{"site/7/{device}/down"},
//		}),
//		Network: netopt.Options{Certificate: netopt.CertificateFiles("cert.pem", "key.pem")},
//	})
//
// The endpoint is the one that "aws iot describe-endpoint --endpoint-type iot:Data-ATS" prints. The
// certificate authenticates the device on port 8883, which is the default; AWSIoTPort443 uses port
// 443. Custom authorizers get Credentials.UserName and the token as the password, on port 443 with
// AWSIoTCustom.
//
// The service has QoS 0 and 1, MQTT 3.1.1 and 5, retained messages and wills. A keep-alive is
// 1200 s at most. It stops reading at 100 unacknowledged messages of a client, so a larger
// device.Options.Window gains nothing.
//
// Sources: AWS IoT Core Developer Guide, "Device communication protocols" (ports, ALPN,
// authentication), "MQTT" (versions, differences from the specification), "MQTT topics" (Basic
// Ingest); AWS General Reference, "AWS IoT Core endpoints and quotas", message broker limits.
func AWSIoT(t Topics) dialect.Dialect { return awsIoT.dialect(&t) }

// AWSIoTPort443 returns n changed to connect to port 443 of host with this ALPN name, for networks
// that let nothing else through.
func AWSIoTPort443(n netopt.Options, host, alpn string) netopt.Options {
	n.Addr = net.JoinHostPort(host, "443")
	if n.TLS = n.TLS.Clone(); n.TLS == nil {
		n.TLS = &tls.Config{} //nolint:gosec // netopt sets the version
	}
	n.TLS.NextProtos = []string{alpn}
	return n
}
