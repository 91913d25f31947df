package dpsmqtt

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/dps"

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
	topic, query, _ := strings.Cut(pk.TopicName, "?")
	rid, operation := "", ""
	for pair := range strings.SplitSeq(query, "&") {
		switch name, value, _ := strings.Cut(pair, "="); name {
		case "$rid":
			rid = value
		case "operationId":
			operation = value
		}
	}
	var a dps.Answer
	switch {
	case topic != registerTopic && topic != pollTopic:
		return fmt.Errorf("%s may not publish to %q", c.who.ID, pk.TopicName)
	case rid == "":
		return fmt.Errorf("topic %q has no $rid", pk.TopicName)
	case topic == registerTopic:
		a = c.front.dps.Register(c.who, pk.Payload)
	default:
		a = c.front.dps.Poll(c.who, operation)
	}
	c.acknowledge(pk)
	c.answer(a, rid)
	return nil
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
	topic := answerTopic + strconv.Itoa(a.Status) + "/?$rid=" + rid
	if a.RetryAfter != "" {
		topic += "&retry-after=" + a.RetryAfter
	}
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
	c.sendLocked(packets.Publish<<4|c.qos<<1, append(body, a.Body...))
}
