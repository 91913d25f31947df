package websocket_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/netproxy"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// A device over MQTT on port 443.
func ExampleMQTT() {
	hub, err := testbroker.New(nil)
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	if _, err := hub.AddDevice("thermometer"); err != nil {
		panic(err)
	}
	creds, err := device.ParseConnectionString(hub.ConnectionString("thermometer"))
	if err != nil {
		panic(err)
	}

	t := mqtt.New(&mqtt.Options{Network: netopt.Options{Tunnel: websocket.MQTT(nil), Dial: hub.Dial(testbroker.PortHTTPS),
		TLS: hub.ClientTLS()}})
	client, err := device.New(creds, t, nil)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()
	if err := client.Open(ctx); err != nil {
		panic(err)
	}
	if err := client.Send(ctx, &transport.Message{ID: "m-1", Body: []byte("21.5")}); err != nil {
		panic(err)
	}
	fmt.Printf("the hub has %s: %s\n", hub.Messages()[0].MessageID, hub.Messages()[0].Body)
	// Output: the hub has m-1: 21.5
}

// Through the proxy of a company network that allows only port 443.
func ExampleMQTT_proxy() {
	dial, err := netproxy.New("http://user:password@proxy.example.com:3128", nil)
	if err != nil {
		panic(err)
	}
	t := mqtt.New(&mqtt.Options{Network: netopt.Options{Tunnel: websocket.MQTT(nil), Dial: dial}})
	fmt.Printf("%T\n", t)
	// Output: *mqtt.Transport
}

// A broker other than a hub serves WebSocket on another port and path.
func ExampleOptions() {
	t := mqtt.New(&mqtt.Options{Network: netopt.Options{Addr: "broker.local:9001",
		Tunnel: websocket.MQTT(&websocket.Options{
			Path: "/mqtt", Header: http.Header{"X-Site": {"7"}},
		})}})
	fmt.Printf("%T\n", t)
	// Output: *mqtt.Transport
}

func Example_statusError() {
	hub, err := testbroker.New(nil)
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	sign, _ := transport.SharedKey("a2V5")
	creds := &transport.Credentials{Host: hub.HostName(), DeviceID: "thermometer", Sign: sign}

	t := mqtt.New(&mqtt.Options{Network: netopt.Options{Tunnel: websocket.MQTT(&websocket.Options{Path: "/elsewhere"}),
		Plaintext: true,
		Dial:      hub.Dial(testbroker.PortHTTP)}})
	_, err = t.Dial(context.Background(), &transport.Config{Creds: creds})
	if refusal, ok := errors.AsType[*transport.StatusError](err); ok {
		fmt.Println("code", refusal.Status, "not found:", errors.Is(err, transport.NotFound))
	}
	// Output: code 404 not found: true
}
