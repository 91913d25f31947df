package interop

import "testing"

// Three NATS servers with JetStream keep what they have acknowledged over MQTT, and clients that
// reconnect to the surviving nodes lose nothing.
func TestNATSClusterSurvivesKills(t *testing.T) {
	c := startNATS(t, 3)
	s := newSiege(t, c)
	a := account{c.addrs(), natsUser, natsPassword}
	s.addMQTT(a, hublinePaho, hublineMQTT)
	s.add("paho.mqtt.golang, 3.1.1", false, newPahoSender(t, a, "site/paho/up"))
	c.observe("site.>", s.arrived)
	s.run()
	s.check()
	commandsArrive(t, c, receiversMQTT(t, a, hublinePaho, hublineMQTT)...)
}
