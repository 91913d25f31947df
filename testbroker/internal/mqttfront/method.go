package mqttfront

import (
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// A methodTarget is a client that has subscribed to methods.
type methodTarget struct{ c *client }

func (t methodTarget) Client() *hub.Conn { return t.c.Conn }

func (methodTarget) Protocol() hubdata.Protocol { return hubdata.MQTT }

func (methodTarget) NewID(n uint64) string { return strconv.FormatUint(n, 16) }

func (methodTarget) OtherID(rid string) string { return "f" + rid }

// Request publishes a request. The query has only the id, because some clients take the rest of the
// query as part of it.
func (t methodTarget) Request(r hub.MethodRequest) bool {
	return t.c.notify(methodTopic+methodSegment(r.Name)+"/?$rid="+r.ID, r.Payload)
}

func (methodTarget) Asks() bool { return false }

// methodSegment escapes a method name for a topic, in which wildcard characters are not allowed.
func methodSegment(name string) string {
	return strings.NewReplacer("%", "%25", "+", "%2B", "#", "%23").Replace(name)
}
