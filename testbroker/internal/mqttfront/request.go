package mqttfront

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// Topics of twins and methods. They name no device: the connection identifies it.
const (
	requestTopics   = "$iothub/"
	twinGetTopic    = "$iothub/twin/GET/?"
	twinPatchTopic  = "$iothub/twin/PATCH/properties/reported/?"
	twinResultTopic = "$iothub/twin/res/"
	desiredTopic    = "$iothub/twin/PATCH/properties/desired/"
	methodTopic     = "$iothub/methods/POST/"
	methodResTopic  = "$iothub/methods/res/"

	twinResultFilter = twinResultTopic + "#"
	desiredFilter    = desiredTopic + "#"
	methodFilter     = methodTopic + "#"
)

// A requestTopic is the parsed topic of a client's request or answer.
type requestTopic struct {
	operation hubdata.TwinOperation // TwinAny = an answer to a method
	rid       string                // undecoded
	version   int64                 // of a patch; zero = none
	status    int                   // of an answer to a method
}

// parseRequestTopic parses
//
//	"$iothub/twin/GET/?" query
//	"$iothub/twin/PATCH/properties/reported/?" query
//	"$iothub/methods/res/" status "/?" query
//
// where query = name "=" value *( "&" name "=" value ) has a $rid, and for a patch optionally a
// $version.
func parseRequestTopic(topic string) (requestTopic, error) {
	var r requestTopic
	query, ok := strings.CutPrefix(topic, twinGetTopic)
	if ok {
		r.operation = hubdata.TwinGet
	} else if query, ok = strings.CutPrefix(topic, twinPatchTopic); ok {
		r.operation = hubdata.TwinPatch
	} else if rest, answer := strings.CutPrefix(topic, methodResTopic); answer {
		var status string
		var err error
		status, query, ok = strings.Cut(rest, "/?")
		if r.status, err = readStatus(status); err != nil || !ok {
			return requestTopic{}, fmt.Errorf("topic %q: want a whole number as the status and /?$rid=", topic)
		}
	} else {
		return requestTopic{}, fmt.Errorf("no such topic: %q", topic)
	}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		switch name {
		case "$rid":
			if r.rid != "" {
				return requestTopic{}, fmt.Errorf("topic %q: two request ids", topic)
			}
			r.rid = value
		case "$version":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 1 {
				return requestTopic{}, fmt.Errorf("topic %q: version that is not a number from 1 on", topic)
			}
			r.version = n
		}
	}
	switch {
	case r.rid == "":
		return requestTopic{}, fmt.Errorf("topic %q: no request id", topic)
	case len(r.rid) > hub.MaxRequestID:
		return requestTopic{}, fmt.Errorf("request id of %d bytes, at most %d are allowed", len(r.rid), hub.MaxRequestID)
	}
	return r, nil
}

// readStatus parses a method status: a 32-bit integer.
func readStatus(s string) (int, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	return int(n), err
}

// request handles a PUBLISH to a topic of twins or methods. An error closes the connection.
func (f service) request(c *client, pk *mqtt.PublishPacket) error {
	h := f.hub
	ack := func() bool {
		if pk.QoS > 0 {
			c.acknowledge(pk.ID, time.Time{}, mqtt.Success, nil)
		}
		return c.Mode.Load() == hub.Open // false if the PUBACK was the last packet
	}
	if strings.HasPrefix(pk.Topic, credentialsTopic) {
		return f.requestCertificate(c, pk, ack)
	}
	r, err := parseRequestTopic(pk.Topic)
	if err != nil {
		return err
	}
	if n := len(pk.Payload); n > hubdata.MaxMessage {
		return fmt.Errorf("request of %d bytes, at most %d are allowed", n, hubdata.MaxMessage)
	}
	if r.operation != hubdata.TwinAny {
		h.AskTwin(asker{c, r.rid, ack}, hubdata.TwinRequest{
			DeviceID: c.ID.Device, ModuleID: c.ID.Module, Operation: r.operation, RequestID: r.rid, Base: r.version,
			Body: pk.Payload, Protocol: hubdata.MQTT,
		}, nil)
		return nil
	}
	a := hubdata.MethodAnswer{
		DeviceID: c.ID.Device, ModuleID: c.ID.Module, RequestID: r.rid,
		MethodResult: hubdata.MethodResult{Status: r.status, Payload: pk.Payload},
		Protocol:     hubdata.MQTT,
	}
	if !h.CutOnAnswer(c.Conn, a) && ack() {
		h.Answered(c.Conn, a)
	}
	return nil
}

// hearsLocked reports whether one of the filters is effective. Front.mu is held.
func (c *client) hearsLocked(filters ...string) bool {
	for _, f := range filters {
		if _, ok := c.heard[f]; ok {
			return true
		}
	}
	return false
}

// notify publishes to the client with QoS 0.
func (c *client) notify(topic string, body []byte) bool {
	if mode := c.Mode.Load(); mode != hub.Open && mode != hub.Silent {
		return false
	}
	_, err := c.Write(mqtt.EncodePublish(mqtt.V311, &mqtt.PublishPacket{Topic: topic, Payload: body}))
	return err == nil
}

// An asker is a client that has published a request.
type asker struct {
	c   *client
	rid string
	ack func() bool
}

func (a asker) Taken() bool { return a.ack() }

func (a asker) Client() *hub.Conn { return a.c.Conn }

func (a asker) Listen(bool) {} // a client over MQTT subscribes instead

// Answer publishes an answer if the client has subscribed. The request id comes first, as some
// clients expect.
func (a asker) Answer(ans hub.TwinAnswer, wrong bool) bool {
	f := a.c.front
	f.mu.Lock()
	hears := a.c.hearsLocked(twinResultFilter)
	f.mu.Unlock()
	if !hears {
		return false
	}
	topic := twinResultTopic + strconv.Itoa(ans.Status) + "/?$rid=" + a.rid
	if wrong {
		topic += "-other"
	}
	if ans.Version > 0 {
		topic += "&$version=" + strconv.FormatInt(ans.Version, 10)
	}
	if ans.RetryAfter > 0 {
		topic += "&retry-after=" + strconv.Itoa(hub.Seconds(ans.RetryAfter))
	}
	return a.c.notify(topic, ans.Body)
}

// A desiredListener is a client that has subscribed to changes of desired properties.
type desiredListener struct{ c *client }

func (l desiredListener) Client() *hub.Conn { return l.c.Conn }

func (l desiredListener) Tell(ch hub.Change) {
	l.c.notify(desiredTopic+"?$version="+strconv.FormatInt(ch.Version, 10), ch.Body)
}
