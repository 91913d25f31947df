package testbroker

import (
	"fmt"
	"slices"
)

// Links returns how many links of a kind over AMQP are attached for a device, named as in
// [Hub.Connections]. [LinkAny] counts all but those that carry tokens.
func (h *Hub) Links(device string, kind LinkKind) int { return h.amqpFront().Links(device, kind) }

// DetachLinks detaches the links of a kind over AMQP that are attached for a device, named as in
// [Hub.Connections], with an error unless it is empty. It returns how many they were.
func (h *Hub) DetachLinks(device string, kind LinkKind, e AMQPError) int {
	return h.amqpFront().DetachLinks(device, kind, e)
}

// EndSessions ends the sessions in which links over AMQP are attached for a device, named as in
// [Hub.Connections], with an error unless it is empty. It returns how many they were.
func (h *Hub) EndSessions(device string, e AMQPError) int {
	return h.amqpFront().EndSessions(device, e)
}

// CloseAMQP closes the connections over AMQP of a device, named as in [Hub.Connections], with an
// error unless it is empty. It returns how many they were.
func (h *Hub) CloseAMQP(device string, e AMQPError) int { return h.amqpFront().CloseAMQP(device, e) }

func (h *Hub) amqpFront() *amqpFront { return h.fronts[AMQP].(*amqpFront) }

// allRoutes returns all that a hub understands over HTTP.
func allRoutes() []httpRoute {
	return slices.Concat(telemetryRoutes, commandRoutes, serviceRoutes, uploadRoutes, blobRoutes)
}

// New makes a hub without devices and without listeners. Nil options mean all defaults.
func New(o *Options) (*Hub, error) {
	h, err := newHub(o)
	if err != nil {
		return nil, err
	}
	mqtt, err := newMQTTFront(h)
	if err != nil {
		return nil, fmt.Errorf("testbroker: %w", err)
	}
	h.setFronts(map[Protocol]front{MQTT: mqtt, AMQP: newAMQPFront(h), HTTP: newWebFront(h, allRoutes())})
	return h, nil
}
