package mqttfront

import (
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// Access to the parsers for tests.

func ParseBag(s string) ([]hubdata.Property, error) { return parseBag(s) }

func ParseTelemetry(device, module, topic string) (hubdata.Message, error) {
	return parseTelemetry(identity.Identity{Device: device, Module: module}, topic)
}

func ParseUserName(s string) (host, device, module string, params []hubdata.Property, err error) {
	u, err := parseUserName(s)
	return u.host, u.id.Device, u.id.Module, u.params, err
}

// ParseRequestTopic parses the topic of a client's request or answer.
func ParseRequestTopic(s string) (op hubdata.TwinOperation, rid string, version int64, status int, err error) {
	r, err := parseRequestTopic(s)
	return r.operation, r.rid, r.version, r.status, err
}
