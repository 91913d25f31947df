package netproxy_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/netproxy"
)

// MQTT over TLS on port 8883, through SOCKS5.
func ExampleNew() {
	dial, err := netproxy.New("socks5://user:password@proxy.example.com:1080", nil)
	if err != nil {
		panic(err)
	}
	t := mqtt.New(&mqtt.Options{Network: netopt.Options{Dial: dial}})
	fmt.Printf("%T\n", t)
	// Output: *mqtt.Transport
}

// Chains two proxies; the first one is reached with TLS.
func ExampleOptions() {
	outer, err := netproxy.New("https://outer.example.com",
		&netproxy.Options{TLS: &tls.Config{MinVersion: tls.VersionTLS13}})
	if err != nil {
		panic(err)
	}
	dial, err := netproxy.New("http://inner.example.com:3128", &netproxy.Options{Dial: outer})
	if err != nil {
		panic(err)
	}
	_ = mqtt.New(&mqtt.Options{Network: netopt.Options{Dial: dial}})
}

func Example_statusError() {
	proxy := func(context.Context, string, string) (net.Conn, error) { // stands for the network
		near, far := net.Pipe()
		go func() {
			far.Read(make([]byte, 1000))
			far.Write([]byte("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"))
		}()
		return near, nil
	}
	dial, err := netproxy.New("http://proxy.example.com:3128", &netproxy.Options{Dial: proxy})
	if err != nil {
		panic(err)
	}
	_, err = dial(context.Background(), "tcp", "hub1.azure-devices.net:8883")
	if refusal, ok := errors.AsType[*transport.StatusError](err); ok {
		fmt.Println("code", refusal.Status, "unauthorized:", errors.Is(err, transport.Unauthorized))
	}
	// Output: code 407 unauthorized: true
}
