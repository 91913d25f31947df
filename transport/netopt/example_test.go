package netopt_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/netproxy/envproxy"
)

// The same settings work for every transport. Find uses the proxy that the environment names.
func ExampleOptions() {
	network := netopt.Options{Proxy: envproxy.Find, ProductInfo: "Thermo/1.0"}
	for _, t := range []transport.Transport{
		mqtt.New(&mqtt.Options{Network: network}),
		amqp.New(&amqp.Options{Network: network}),
	} {
		fmt.Printf("%T\n", t)
	}
	// Output:
	// *mqtt.Transport
	// *amqp.Transport
}

// A device that proves its identity with a certificate needs neither Sign nor Token.
func ExampleCertificateFiles() {
	network := netopt.Options{Certificate: netopt.CertificateFiles("/etc/device/cert.pem", "/etc/device/key.pem")}
	t := mqtt.New(&mqtt.Options{Network: network})
	creds := &transport.Credentials{Host: "hub1.azure-devices.net", DeviceID: "thermometer"}
	_, err := t.Dial(context.Background(), &transport.Config{Creds: creds})
	fmt.Println("files are missing:", errors.Is(err, transport.Invalid))
	// Output: files are missing: true
}

// The device trusts a private authority instead of the system's roots.
func ExampleRootFiles() {
	network := netopt.Options{RootCAs: netopt.RootFiles("/etc/device/authority.pem")}
	t := mqtt.New(&mqtt.Options{Network: network})
	creds := &transport.Credentials{Host: "broker.example.com", DeviceID: "thermometer", UserName: "thermometer"}
	_, err := t.Dial(context.Background(), &transport.Config{Creds: creds})
	fmt.Println("the file is missing:", errors.Is(err, transport.Invalid))
	// Output: the file is missing: true
}

// The three nodes of a cluster have certificates for the name broker.example.com. The client
// connects to one of them, and to another one when it is lost.
func ExampleFailover() {
	nodes := netopt.Failover(nil, "node1.example.com:8883", "node2.example.com:8883", "node3.example.com:8883")
	network := netopt.Options{Dial: nodes, TLS: &tls.Config{ServerName: "broker.example.com"}}
	fmt.Printf("%T\n", mqtt.New(&mqtt.Options{Network: network}))
	// Output: *mqtt.Transport
}
