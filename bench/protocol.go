package main

import (
	"fmt"
	"net"

	"github.com/hubline-iot/hubline/testbroker"
)

// Protocol is the subject of a comparison: its senders and peers.
type Protocol struct {
	Name    string
	Senders []Contender // the others are compared with the first
	Peers   []string    // for OpenPeer

	listen func(hub *testbroker.Hub, secure bool) (net.Addr, error) // opens the hub's port
	answer func(c net.Conn) error                                   // serves a connection to the bare responder
}

// Contender is one of the compared senders.
type Contender struct {
	Name string
	Open func(p *Peer, l Load) (Sender, error)
}

// MQTT compares clients at QoS 1. The peers are the in-process hub, a responder that only
// acknowledges, and the broker mosquitto.
var MQTT = &Protocol{
	Name: "MQTT",
	Senders: []Contender{{"raw paho", Paho}, {"limit", Limit}, {"over paho", OverPaho}, {"over mqtt", OverMQTT},
		{"over mqtt, ids", OverMQTTWithIDs}},
	Peers: []string{"hub", "bare", "mosquitto"},
	listen: func(hub *testbroker.Hub, secure bool) (net.Addr, error) {
		if secure {
			return hub.Listen(testbroker.PortMQTTS, anyPort)
		}
		return hub.Listen(testbroker.PortMQTT, anyPort)
	},
	answer: answerMQTT,
}

// MQTT5 compares clients of MQTT 5 at QoS 1, and Hubline over MQTT 3.1.1 beside them. The peers are
// brokers that are no hubs, and the responder that only acknowledges.
var MQTT5 = &Protocol{
	Name: "MQTT 5",
	Senders: []Contender{{"raw paho.golang", PahoGolang}, {"limit", Limit5}, {"Hubline 3.1.1", OverTopics},
		{"Hubline 5", OverMQTT5}},
	Peers:  []string{"mochi", "mosquitto", "bare"},
	answer: answerMQTT,
}

// AMQP compares clients on one link, with unsettled transfers. The peers are the in-process hub and
// a responder that only accepts.
var AMQP = &Protocol{
	Name:    "AMQP",
	Senders: []Contender{{"raw go-amqp", GoAMQP}, {"Hubline", OverAMQP}, {"Hubline, no batches", OverAMQPAlone}},
	Peers:   []string{"hub", "bare"},
	listen: func(hub *testbroker.Hub, secure bool) (net.Addr, error) {
		if secure {
			return hub.Listen(testbroker.PortAMQPS, anyPort)
		}
		return hub.Listen(testbroker.PortAMQP, anyPort)
	},
	answer: answerAMQP,
}

// Protocols are all protocols.
var Protocols = []*Protocol{MQTT, MQTT5, AMQP}

const anyPort = "127.0.0.1:0"

// protocolNamed returns a protocol by the name that is sent over a pipe.
func protocolNamed(name string) *Protocol {
	for _, p := range Protocols {
		if p.Name == name {
			return p
		}
	}
	panic("no protocol " + name)
}

// Number of messages that a hub keeps: all if they are compared afterwards. Few during a
// measurement, which would otherwise include the growth of a log: with 4,096 of 255 KiB a hub needs
// most of its time for new pages.
const (
	keepAll = 0
	keepFew = 16
)

// newHub makes a hub with n devices on a loopback port, and the access to it.
func newHub(p *Protocol, n int, secure bool, keep int) (*testbroker.Hub, *access, error) {
	hub, err := testbroker.New(&testbroker.Options{Keep: keep})
	if err != nil {
		return nil, nil, err
	}
	a := &access{Host: hub.HostName()}
	if secure {
		a.CA = hub.CAPEM()
	}
	addr, err := p.listen(hub, secure)
	if err != nil {
		_ = hub.Close()
		return nil, nil, err
	}
	a.Addr = addr.String()
	for i := range n {
		dev, err := hub.AddDevice(fmt.Sprintf("dev-%d", i))
		if err != nil {
			_ = hub.Close()
			return nil, nil, err
		}
		a.Devices = append(a.Devices, identity{dev.ID, dev.PrimaryKey})
	}
	return hub, a, nil
}
