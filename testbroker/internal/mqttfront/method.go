package mqttfront

import (
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// A methodTarget is a client that has subscribed to methods.
type methodTarget struct{ c *client }

func (t methodTarget) Client() *hub.Conn { return t.c.Conn }

func (methodTarget) Protocol() hub.Protocol { return hub.MQTT }

func (methodTarget) NewID(n uint64) string { return strconv.FormatUint(n, 16) }

func (methodTarget) OtherID(rid string) string { return "f" + rid }

// Request publishes a request. The id is all that the query has: there are clients that take what
// follows for a part of it.
func (t methodTarget) Request(rid, name string, payload []byte) bool {
	return t.c.notify(methodTopic+methodSegment(name)+"/?$rid="+rid, payload)
}

// methodSegment is the name of a method in a topic, where the characters of wildcards must not be.
func methodSegment(name string) string {
	return strings.NewReplacer("%", "%25", "+", "%2B", "#", "%23").Replace(name)
}
