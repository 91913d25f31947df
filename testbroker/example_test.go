package testbroker_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/url"
	"strings"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// connectPaho stands for the client under test. It only connects.
func connectPaho(hub *testbroker.Hub, dev hubdata.Device) paho.Client {
	c := paho.NewClient(paho.NewClientOptions().AddBroker("tcp://hub").SetClientID(dev.ID).SetAutoReconnect(false).
		SetUsername(dev.HostName + "/" + dev.ID + "/?api-version=2021-04-12").SetPassword(hubtest.Token(dev)).
		SetCustomOpenConnectionFn(func(*url.URL, paho.ClientOptions) (net.Conn, error) {
			return hub.Dial(testbroker.PortMQTT)(context.Background(), "tcp", "hub")
		}))
	if t := c.Connect(); t.Wait() && t.Error() != nil {
		log.Fatal(t.Error())
	}
	return c
}

// hubWith makes a hub with a device, as the first example does.
func hubWith(device string, o *testbroker.Options) (*testbroker.Hub, hubdata.Device) {
	hub, err := testbroker.New(o)
	if err != nil {
		log.Fatal(err)
	}
	dev, err := hub.AddDevice(device)
	if err != nil {
		log.Fatal(err)
	}
	return hub, dev
}

// A device sends a message, and the test reads it at the hub.
func Example() {
	hub, err := testbroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close()
	dev, err := hub.AddDevice("dev-1")
	if err != nil {
		log.Fatal(err)
	}

	client := connectPaho(hub, dev)
	defer client.Disconnect(0)
	client.Publish("devices/dev-1/messages/events/%24.mid=1&level=high%20temp", 1, false, `{"celsius":71}`)

	if err := hub.WaitMessages(context.Background(), 1); err != nil {
		log.Fatal(err)
	}
	m := hub.Messages()[0]
	fmt.Println(m.DeviceID, m.MessageID, m.Properties, string(m.Body))
	// Output: dev-1 1 [{level high temp}] {"celsius":71}
}

func ExampleHub_SendC2D() {
	hub, dev := hubWith("dev-1", nil)
	defer hub.Close()

	client := connectPaho(hub, dev)
	defer client.Disconnect(0)
	client.Subscribe("devices/dev-1/messages/devicebound/#",
		1, func(_ paho.Client, m paho.Message) { fmt.Println(string(m.Payload())) })

	if err := hub.SendC2D("dev-1", hubdata.C2D{Ack: "full", Body: []byte("reboot")}); err != nil {
		log.Fatal(err)
	}
	if err := hub.WaitC2D(context.Background(), "dev-1", hubdata.C2DCompleted, 1); err != nil {
		log.Fatal(err)
	}
	c := hub.C2DLog("dev-1")[0]
	fmt.Println(c.State, c.Deliveries, c.Feedback)
	// Output:
	// reboot
	// completed 1 Success
}

func ExampleHub_CallMethod() {
	hub, dev := hubWith("dev-1", nil)
	defer hub.Close()

	client := connectPaho(hub, dev)
	defer client.Disconnect(0)
	client.Subscribe("$iothub/methods/POST/#", 0, func(c paho.Client, m paho.Message) {
		_, rid, _ := strings.Cut(m.Topic(), "$rid=")
		c.Publish("$iothub/methods/res/200/?$rid="+rid, 0, false, `{"done":true}`)
	})

	result, err := hub.CallMethod(context.Background(), "dev-1", hubdata.MethodCall{
		Name: "reboot", Payload: []byte(`{"in":5}`), ConnectTimeout: time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Status, string(result.Payload))
	fmt.Println(hub.MethodLog("dev-1")[0].Deliveries, hub.MethodAnswers("dev-1")[0].Fate)
	// Output:
	// 200 {"done":true}
	// 1 taken
}

func ExampleHub_PatchDesired() {
	hub, dev := hubWith("dev-1", nil)
	defer hub.Close()

	client := connectPaho(hub, dev)
	defer client.Disconnect(0)
	client.Subscribe("$iothub/twin/PATCH/properties/desired/#", 0, func(c paho.Client, m paho.Message) {
		fmt.Println(string(m.Payload()))
		c.Publish("$iothub/twin/PATCH/properties/reported/?$rid=1", 0, false, `{"interval":60}`)
	}).Wait()

	version, err := hub.PatchDesired("dev-1", `{"interval":60}`)
	if err != nil {
		log.Fatal(err)
	}
	err = hub.WaitReported(context.Background(), "dev-1", func(t hubdata.Twin) bool { return t.ReportedVersion > 1 })
	if err != nil {
		log.Fatal(err)
	}
	twin, err := hub.Twin("dev-1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(version, string(twin.Reported))
	// Output:
	// {"$version":2,"interval":60}
	// 2 {"interval":60}
}

func ExampleHub_Inject() {
	hub, dev := hubWith("dev-1", &testbroker.Options{OnEvent: func(e event.Event) { fmt.Println(e) }})
	defer hub.Close()

	// The second message will be stored, but its sender is cut off before the PUBACK.
	hub.Inject(fault.Fault{Kind: fault.DropAfterPublish, Device: "dev-1", After: 1})

	client := connectPaho(hub, dev)
	for i := range 2 {
		t := client.Publish(fmt.Sprintf("devices/dev-1/messages/events/%%24.mid=%d", i), 1, false, "")
		t.Wait()
	}
	err := hub.Wait(context.Background(), func([]hubdata.Message) bool { return hub.Connections("") == 0 })
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(hub.Len(), "messages stored")
	// Unordered output:
	// dev-1 fault DropAfterPublish declared
	// #1 dev-1 connected
	// #1 dev-1 message "0", 0 bytes over MQTT
	// #1 dev-1 message "1", 0 bytes over MQTT
	// #1 dev-1 fault DropAfterPublish
	// #1 dev-1 disconnected: fault DropAfterPublish
	// 2 messages stored
}

// A plain broker, with a client that knows nothing of hubs.
func ExampleBrokerOptions() {
	hub, dev := hubWith("pump-1", &testbroker.Options{Broker: &testbroker.BrokerOptions{
		Telemetry: "site/{device}/up/#", Commands: "site/{device}/down/#",
	}})
	defer hub.Close()

	client := paho.NewClient(paho.NewClientOptions().AddBroker("tcp://broker").SetClientID("pump-1").
		SetUsername("pump-1").SetPassword(dev.PrimaryKey).SetAutoReconnect(false).
		SetCustomOpenConnectionFn(func(*url.URL, paho.ClientOptions) (net.Conn, error) {
			return hub.Dial(testbroker.PortMQTT)(context.Background(), "tcp", "broker")
		}))
	if t := client.Connect(); t.Wait() && t.Error() != nil {
		log.Fatal(t.Error())
	}
	defer client.Disconnect(0)
	client.Publish("site/pump-1/up/pressure", 1, true, "4.2")
	if err := hub.WaitMessages(context.Background(), 1); err != nil {
		log.Fatal(err)
	}
	m := hub.Messages()[0]
	fmt.Println(m.DeviceID, m.Topic, m.Retain, string(m.Body))

	session, _ := hub.Session("pump-1")
	fmt.Println("version", session.Version, "clean", session.CleanStart)
	// Output:
	// pump-1 site/pump-1/up/pressure true 4.2
	// version 4 clean true
}

func ExampleHub_BrokerURL() {
	hub, _ := hubWith("pump-1", &testbroker.Options{Broker: &testbroker.BrokerOptions{Password: "secret"}})
	defer hub.Close()
	fmt.Println(hub.BrokerURL("pump-1", "mqtt", "localhost:1883"))
	// Output:
	// mqtt://pump-1:secret@localhost:1883/?device=pump-1&telemetry=devices/{device}/up&commands=devices/{device}/down/%23
}
