package testbroker

import (
	"strconv"
	"strings"
)

// An mqttTarget is a client that has subscribed to methods.
type mqttTarget struct{ c *mqttConn }

func (t mqttTarget) client() *conn { return t.c.conn }

func (mqttTarget) protocol() Protocol { return MQTT }

func (mqttTarget) newID(n uint64) string { return strconv.FormatUint(n, 16) }

func (mqttTarget) otherID(rid string) string { return "f" + rid }

// request publishes a request. The id is all that the query has: there are clients that take what
// follows for a part of it.
func (t mqttTarget) request(rid, name string, payload []byte) bool {
	return t.c.notify(methodTopic+methodSegment(name)+"/?$rid="+rid, payload)
}

// methodSegment is the name of a method in a topic, where the characters of wildcards must not be.
func methodSegment(name string) string {
	return strings.NewReplacer("%", "%25", "+", "%2B", "#", "%23").Replace(name)
}
