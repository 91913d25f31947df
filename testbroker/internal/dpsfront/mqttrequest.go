package dpsfront

import (
	"bytes"
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
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

const (
	answerFilter  = "$dps/registrations/res/#"
	answerTopic   = "$dps/registrations/res/"
	registerTopic = "$dps/registrations/PUT/iotdps-register/"
	pollTopic     = "$dps/registrations/GET/iotdps-get-operationstatus/"
	updateTopic   = "$dps/registrations/POST/" // and the name of an operation
)

// publish handles a PUBLISH, which is a request. An error closes the connection: MQTT 3.1.1 has no
// other answer.
func (c *client) publish(k *mqtt.PublishPacket) error {
	if k.QoS > 1 {
		return errors.New("publish with QoS 2")
	}
	op, rid, operation, err := parseTopic(k.Topic)
	if err != nil {
		return fmt.Errorf("%s: %w", c.who.ID, err)
	}
	a := c.front.dps.Serve(c.who, c.Conn, op, operation, bytes.Clone(k.Payload))
	if a.Cut != 0 {
		c.CutFor(hub.FaultError(a.Cut))
		return hub.FaultError(a.Cut)
	}
	if a.Early {
		c.answer(a, rid)
	}
	c.acknowledge(k)
	switch {
	case a.Early, a.Silent:
	case a.Delay > 0:
		c.Hub.Later(a.Delay, c.Closed, func() { c.answer(a, rid) })
	default:
		c.answer(a, rid)
	}
	return nil
}

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
	update, _ := strings.CutPrefix(topic, updateTopic)
	segment, slash := strings.CutSuffix(update, "/")
	updateOp, isUpdate := dps.FindUpdateOperation(segment)
	switch {
	case topic == registerTopic:
		op = dpsdata.OperationRegister
	case topic == pollTopic:
		op = dpsdata.OperationPoll
	case update != topic && slash && isUpdate:
		op = updateOp
	default:
		return 0, "", "", fmt.Errorf("may not publish to %q", name)
	}
	switch {
	case strings.ContainsAny(name, "+#"):
		return 0, "", "", fmt.Errorf("topic %q has a wildcard [MQTT-3.3.2-2]", name)
	case rid == "":
		return 0, "", "", fmt.Errorf("topic %q has no $rid", name)
	case len(rid) > hub.MaxRequestID:
		return 0, "", "", fmt.Errorf("$rid of %d bytes, at most %d are allowed", len(rid), hub.MaxRequestID)
	}
	return op, rid, operation, nil
}

// acknowledge sends the PUBACK. It comes before the answer, as some clients need it.
func (c *client) acknowledge(k *mqtt.PublishPacket) {
	if k.QoS > 0 && c.Fault(fault.SwallowPuback) == nil {
		c.send(mqtt.EncodeAck(mqtt.V311, mqtt.Puback, mqtt.AckPacket{ID: k.ID}))
	}
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
	k := &mqtt.PublishPacket{QoS: c.qos, Topic: topic, Payload: payload}
	if c.qos > 0 {
		c.last = max(c.last+1, 1)
		k.ID = c.last
	}
	c.Write(mqtt.EncodePublish(mqtt.V311, k))
}
