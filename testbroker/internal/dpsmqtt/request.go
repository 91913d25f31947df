package dpsmqtt

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"

	"github.com/mochi-mqtt/server/v2/packets"
)

const (
	answerFilter  = "$dps/registrations/res/#"
	answerTopic   = "$dps/registrations/res/"
	registerTopic = "$dps/registrations/PUT/iotdps-register/"
	pollTopic     = "$dps/registrations/GET/iotdps-get-operationstatus/"
)

// publish handles a PUBLISH, which is a request. An error closes the connection: MQTT 3.1.1 has no
// other answer.
func (c *client) publish(pk packets.Packet) error {
	switch {
	case pk.FixedHeader.Qos > 1:
		return errors.New("publish with QoS 2")
	case pk.FixedHeader.Qos > 0 && pk.PacketID == 0:
		return errors.New("publish with packet id 0 [MQTT-2.3.1-1]")
	}
	op, rid, operation, err := parseTopic(pk.TopicName)
	if err != nil {
		return fmt.Errorf("%s: %w", c.who.ID, err)
	}
	a := c.front.dps.Serve(c.who, c.Conn, op, operation, pk.Payload)
	if a.Cut != 0 {
		c.CutFor(hub.FaultError(a.Cut))
		return hub.FaultError(a.Cut)
	}
	if a.Early {
		c.answer(a, rid)
	}
	c.acknowledge(pk)
	switch {
	case a.Early, a.Silent:
	case a.Delay > 0:
		c.Hub.Later(a.Delay, c.Closed, func() { c.answer(a, rid) })
	default:
		c.answer(a, rid)
	}
	return nil
}

// maxRequestID bounds a request id, which becomes part of the topic of the answer.
const maxRequestID = 1024

// parseTopic parses the topic of a request.
func parseTopic(name string) (op dpsdata.Operation, rid, operation string, err error) {
	topic, query, _ := strings.Cut(name, "?")
	for pair := range strings.SplitSeq(query, "&") {
		switch name, value, _ := strings.Cut(pair, "="); name {
		case "$rid":
			rid = value
		case "operationId":
			operation = value
			if plain, err := url.PathUnescape(value); err == nil {
				operation = plain
			}
		}
	}
	switch {
	case topic == registerTopic:
		op = dpsdata.Register
	case topic == pollTopic:
		op = dpsdata.Poll
	default:
		return 0, "", "", fmt.Errorf("may not publish to %q", name)
	}
	switch {
	case strings.ContainsAny(name, "+#"):
		return 0, "", "", fmt.Errorf("topic %q has a wildcard [MQTT-3.3.2-2]", name)
	case rid == "":
		return 0, "", "", fmt.Errorf("topic %q has no $rid", name)
	case len(rid) > maxRequestID:
		return 0, "", "", fmt.Errorf("$rid of %d bytes, at most %d are allowed", len(rid), maxRequestID)
	}
	return op, rid, operation, nil
}

// acknowledge sends the PUBACK. It comes before the answer, as some clients need it.
func (c *client) acknowledge(pk packets.Packet) {
	if pk.FixedHeader.Qos == 0 {
		return
	}
	if in := c.Hub.Faults.Take(fault.SwallowPuback, c.ID); in != nil {
		c.Hub.Happened(in, c.Conn)
		return
	}
	c.send(packets.Puback<<4, []byte{byte(pk.PacketID >> 8), byte(pk.PacketID)})
}

// answer publishes an answer if the client has subscribed. The request id comes first and the delay
// second, because some clients look for them there.
func (c *client) answer(a dps.Answer, rid string) {
	if a.Misname {
		rid += "-other"
	}
	properties := []string{"$rid=" + rid}
	if a.RetryAfter != "" {
		properties = append(properties, "retry-after="+a.RetryAfter)
	}
	if a.Reorder {
		properties = append(properties, "x")
		slices.Reverse(properties)
	}
	topic := answerTopic + strconv.Itoa(a.Status) + "/?" + strings.Join(properties, "&")
	c.publishAnswer(topic, a.Body)
	if a.Twice {
		c.publishAnswer(topic, a.Body)
	}
}

func (c *client) publishAnswer(topic string, payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hear {
		return
	}
	body := append([]byte{byte(len(topic) >> 8), byte(len(topic))}, topic...)
	if c.qos > 0 {
		if c.last++; c.last == 0 {
			c.last = 1
		}
		body = append(body, byte(c.last>>8), byte(c.last))
	}
	c.sendLocked(packets.Publish<<4|c.qos<<1, append(body, payload...))
}
