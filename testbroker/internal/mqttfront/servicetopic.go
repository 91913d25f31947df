package mqttfront

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
)

// parseTelemetry parses a topic to which the given identity published.
func parseTelemetry(id identity.Identity, topic string) (hubdata.Message, error) {
	bag, ok := strings.CutPrefix(topic, id.Telemetry())
	if !ok {
		return hubdata.Message{}, fmt.Errorf("%s may not publish to %q", id, topic)
	}
	all, err := parseBag(bag)
	if err != nil {
		return hubdata.Message{}, fmt.Errorf("topic %q: %w", topic, err)
	}
	m := hubdata.Message{DeviceID: id.Device, ModuleID: id.Module, Topic: topic}
	for _, p := range all {
		if !strings.HasPrefix(p.Name, "$.") {
			m.Properties = append(m.Properties, p)
			continue
		}
		telemetry.AddSystem(&m, p.Name, p.Value)
	}
	return m, telemetry.CheckID(m.MessageID)
}

// parseBag parses
//
//	[ pair *( "&" pair ) ] [ "/" ]        pair = name [ "=" [ value ] ]
//
// with names and values percent-encoded. A plus sign is literal.
func parseBag(bag string) ([]hubdata.Property, error) {
	bag = strings.TrimSuffix(bag, "/")
	if bag == "" {
		return nil, nil
	}
	if strings.Contains(bag, "/") {
		return nil, errors.New("slash in the property bag")
	}
	all := make([]hubdata.Property, 0, strings.Count(bag, "&")+1)
	for pair := range strings.SplitSeq(bag, "&") {
		name, value, _ := strings.Cut(pair, "=")
		var p hubdata.Property
		var err error
		if p.Name, err = unescape(name); err != nil {
			return nil, err
		}
		if p.Value, err = unescape(value); err != nil {
			return nil, err
		}
		if p.Name == "" {
			return nil, errors.New("property without a name")
		}
		all = append(all, p)
	}
	return all, nil
}

func unescape(s string) (string, error) {
	text, err := url.PathUnescape(s)
	if err == nil && !utf8.ValidString(text) {
		err = fmt.Errorf("%q is not UTF-8", s)
	}
	return text, err
}
