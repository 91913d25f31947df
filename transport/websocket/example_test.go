package websocket_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/netproxy"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// The same session as over TLS, on port 443.
func ExampleMQTT() {
	hub, err := testbroker.New(nil)
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	dev, err := hub.AddDevice("thermometer")
	if err != nil {
		panic(err)
	}
	sign, err := transport.SharedKey(dev.PrimaryKey)
	if err != nil {
		panic(err)
	}

	t := mqtt.New(&mqtt.Options{Network: netopt.Options{Tunnel: websocket.MQTT(nil), Dial: hub.Dial(testbroker.PortHTTPS),
		TLS: hub.ClientTLS()}})
	creds := &transport.Credentials{Host: dev.HostName, DeviceID: dev.ID, Sign: sign}
	ctx, cancel := context.WithCancel(context.Background())
	session, err := t.Dial(ctx, &transport.Config{Creds: creds, Window: 1, Sink: endAfterFirst{cancel}})
	if err != nil {
		panic(err)
	}
	session.Send([]transport.Item{{Msg: &transport.Message{ID: "m-1", Body: []byte("21.5")}}})
	session.Run(ctx) // until the message is done, which ends ctx
	fmt.Printf("the hub has %s: %s\n", hub.Messages()[0].MessageID, hub.Messages()[0].Body)
	// Output: the hub has m-1: 21.5
}

// endAfterFirst is a transport.Sink that ends the session with the first result.
type endAfterFirst struct{ end context.CancelFunc }

func (g endAfterFirst) Done(uint16, error)               { g.end() }
func (g endAfterFirst) Reply(uint32, transport.Reply)    {}
func (g endAfterFirst) Deliver(*transport.Delivery) bool { return false }

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
