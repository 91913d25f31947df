package bench

import (
	"net"

	"github.com/hubline-iot/hubline/testbroker"
)

// A Protocol is what a comparison is about: who sends, and to whom.
type Protocol struct {
	Name    string
	Senders []Contender // the first is what the others are compared with
	Peers   []string    // for OpenPeer

	listen func(hub *testbroker.Hub, secure bool) (net.Addr, error) // opens the hub's port
	answer func(c net.Conn) error                                   // serves a connection to the bare responder
}

// A Contender is one of those that are compared.
type Contender struct {
	Name string
	Open func(p *Peer, window, size int) (Sender, error)
}

// MQTT compares clients at QoS 1. The peers are the in-process hub, a responder that only
// acknowledges, and the broker mosquitto.
var MQTT = &Protocol{
	Name:    "MQTT",
	Senders: []Contender{{"raw paho", Paho}, {"limit", Limit}, {"over paho", OverPaho}, {"over lean", OverLean}},
	Peers:   []string{"hub", "bare", "mosquitto"},
	listen: func(hub *testbroker.Hub, secure bool) (net.Addr, error) {
		if secure {
			return hub.Listen(testbroker.PortMQTTS, anyPort)
		}
		return hub.Listen(testbroker.PortMQTT, anyPort)
	},
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

// Protocols are all there are.
var Protocols = []*Protocol{MQTT, AMQP}

const anyPort = "127.0.0.1:0"

// protocolNamed is for what goes through a pipe.
func protocolNamed(name string) *Protocol {
	for _, p := range Protocols {
		if p.Name == name {
			return p
		}
	}
	panic("no protocol " + name)
}
