package mqttfront

import (
	"slices"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// Access to the parsers for tests.

func ParseBag(s string) ([]hubdata.Property, error) { return parseBag(s) }

func ParseTelemetry(device, module, topic string) (hubdata.Message, error) {
	return parseTelemetry(hub.Identity{Device: device, Module: module}, topic)
}

func ParseUserName(s string) (host, device, module string, params []hubdata.Property, err error) {
	u, err := parseUserName(s)
	return u.host, u.id.Device, u.id.Module, u.params, err
}

// Packets returns the complete packets of a stream that arrives in pieces, and the largest buffer.
func Packets(pieces ...[]byte) (all [][]byte, buffer int, err error) {
	var b inbox
	for _, p := range pieces {
		for len(p) > 0 {
			n := copy(b.room(), p)
			b.add(n)
			p, buffer = p[n:], max(buffer, len(b.buf))
			for {
				_, head, size, err := b.head()
				if err != nil {
					return all, buffer, err
				}
				if size == 0 || len(b.in) < size || head > size {
					break
				}
				all = append(all, slices.Clone(b.take(size)))
			}
		}
	}
	return all, buffer, nil
}

// ParseRequestTopic parses the topic of a client's request or answer.
func ParseRequestTopic(s string) (op hubdata.TwinOperation, rid string, version int64, status int, err error) {
	r, err := parseRequestTopic(s)
	return r.operation, r.rid, r.version, r.status, err
}
