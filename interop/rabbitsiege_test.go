package interop

import (
	"testing"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// hublineAMQP is a device over AMQP 1.0 to a queue of a cluster.
func hublineAMQP(c *rabbitCluster, queue string) func(l *ledger) (*transport.Credentials, transport.Transport) {
	return func(l *ledger) (*transport.Credentials, transport.Transport) {
		l.unread = true
		nodes := netopt.Failover(nil, c.addrs(func(n *rabbitNode) string { return n.amqp })...)
		return brokerCreds(clientID(l.name), rabbitUser, rabbitPassword), amqp.New(&amqp.Options{
			Network:   netopt.Options{Plaintext: true, Dial: tapped(nodes, tapAMQP, l)},
			Addresses: &amqp.Addresses{Telemetry: "/amq/queue/" + queue},
		})
	}
}

// transport is that of a device that receives commands.
func (c *rabbitCluster) transport() transport.Transport {
	return amqp.New(&amqp.Options{
		Network: netopt.Options{
			Plaintext: true, Dial: netopt.Failover(nil, c.addrs(func(n *rabbitNode) string { return n.amqp })...),
		},
		Addresses: &amqp.Addresses{Telemetry: "/amq/queue/" + queueTelemetry, Commands: "/amq/queue/" + queueCloudToDevice},
	})
}

// Three RabbitMQ nodes with quorum queues keep what they have accepted over AMQP 1.0 and MQTT
// 3.1.1, the only version that RabbitMQ 3.10 speaks. Clients that reconnect to the surviving nodes
// lose nothing.
func TestRabbitMQClusterSurvivesKills(t *testing.T) {
	t.Parallel()
	c := startRabbits(t, 3)
	s := newSiege(t, c)
	a := account{c.addrs(func(n *rabbitNode) string { return n.mqtt }), rabbitUser, rabbitPassword}
	s.add("Hubline, AMQP 1.0", true, newHublineSender(t, hublineAMQP(c, queueTelemetry)))
	s.addMQTT(a, hublinePaho, hublineMQTT)
	s.add("paho.mqtt.golang, 3.1.1", false, newPahoSender(t, a, "site/paho/up"))
	c.observe(queueTelemetry, s.arrived)
	c.observe(queueMQTT, s.arrived)
	s.run()
	s.check()
	commandsArrive(t, c, append(receiversMQTT(t, a, hublinePaho, hublineMQTT), receiverAMQP(c))...)
}
