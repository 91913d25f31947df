package mqtt_test

import (
	"context"
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// A device client takes the transport as a value: device.New(creds, mqtt.New(nil), nil). This
// example uses the transport without a client.
func ExampleNew() {
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

	t := mqtt.New(&mqtt.Options{Network: netopt.Options{Dial: hub.Dial(testbroker.PortMQTTS), TLS: hub.ClientTLS()}})
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

// A gateway on the local network with its own name and a slower connection.
func ExampleOptions() {
	t := mqtt.New(&mqtt.Options{
		Network: netopt.Options{TLS: &tls.Config{MinVersion: tls.VersionTLS13},
			Addr:         "192.0.2.1:8883",
			WriteTimeout: 30 * time.Second,
			ProductInfo:  "Thermometer/2.1"}, KeepAlive: 4 * time.Minute,
	})
	fmt.Printf("%T\n", t)
	// Output: *mqtt.Transport
}

func ExampleConnackError() {
	hub, err := testbroker.New(nil)
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	sign, _ := transport.SharedKey("d3Jvbmc=")
	creds := &transport.Credentials{Host: hub.HostName(), DeviceID: "unknown", Sign: sign}

	_, err = mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortMQTT)}}).Dial(
		context.Background(),
		&transport.Config{Creds: creds})
	if refusal, ok := errors.AsType[*mqtt.ConnackError](err); ok {
		fmt.Println("code", refusal.Code, "unauthorized:", errors.Is(err, transport.Unauthorized))
	}
	// Output: code 5 unauthorized: true
}

// The cause of a refused subscription is in the reply to OpSubscribe.
func ExampleSubackError() {
	reply := transport.Reply{Err: &transport.Error{
		Kind: transport.Unavailable, Op: transport.OpSubscribe, Proto: "mqtt",
		Err: &mqtt.SubackError{Filter: "devices/dev-1/messages/devicebound/#", Code: 0x80},
	}}
	if refusal, ok := errors.AsType[*mqtt.SubackError](reply.Err); ok {
		fmt.Println(refusal)
	}
	// Output: SUBACK 128 (refused) for devices/dev-1/messages/devicebound/#
}

// A key that does not leave its chip is a crypto.Signer. Here an ordinary key stands for it.
func ExampleOptions_certificate() {
	hub, err := testbroker.New(nil)
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	made := testbroker.NewClientCert("thermometer", time.Time{}, time.Time{})
	if _, err := hub.AddDeviceX509("thermometer", testbroker.Thumbprint(made.Leaf)); err != nil {
		panic(err)
	}
	var chip crypto.Signer = made.PrivateKey.(crypto.Signer)

	t := mqtt.New(&mqtt.Options{
		Network: netopt.Options{Dial: hub.Dial(testbroker.PortMQTTS), TLS: hub.ClientTLS(),
			Certificate: func(context.Context) (*tls.Certificate, error) {
				return &tls.Certificate{Certificate: made.Certificate, PrivateKey: chip}, nil
			}},
	})
	creds := &transport.Credentials{Host: hub.HostName(), DeviceID: "thermometer"}
	ctx, cancel := context.WithCancel(context.Background())
	session, err := t.Dial(ctx, &transport.Config{Creds: creds})
	fmt.Println("connected:", err == nil)
	cancel()
	session.Run(ctx)
	// Output: connected: true
}

// A gateway has a certificate from its own authority.
func ExampleOptions_gateway() {
	t := mqtt.New(&mqtt.Options{Network: netopt.Options{RootCAs: netopt.RootFiles("trust-bundle.pem")}})
	creds := &transport.Credentials{Host: "hub1.azure-devices.net", GatewayHost: "gateway.local", DeviceID: "thermometer",
		ModuleID: "filter"}
	_, _ = t, creds // for device.New
}

// The Plug and Play model that the device announces.
func ExampleOptions_modelID() {
	t := mqtt.New(&mqtt.Options{ModelID: "dtmi:com:example:Thermostat;1"})
	fmt.Printf("%T\n", t)
	// Output: *mqtt.Transport
}
