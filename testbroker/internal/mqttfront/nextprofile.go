package mqttfront

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// A Profile has the settings of a hub with the MQTT v5 connection profile.
type Profile struct{ hubdata.MQTTv5Options }

const (
	maxTopics      = 10
	deviceVariable = "{deviceId}"
	anyLevels      = "/*"
)

// ProfileOf checks the settings.
func ProfileOf(o hubdata.MQTTv5Options) (*Profile, error) {
	if len(o.Topics) > maxTopics {
		return nil, fmt.Errorf("testbroker: MQTTv5Options.Topics: %d templates, at most %d are allowed", len(o.Topics),
			maxTopics)
	}
	for _, t := range o.Topics {
		plain := strings.TrimSuffix(strings.ReplaceAll(t, deviceVariable, "x"), anyLevels)
		if !mqtt.ValidName(plain) || strings.ContainsAny(plain, "{}*$") || strings.HasPrefix(plain+"/", "ih/") {
			return nil, fmt.Errorf("testbroker: MQTTv5Options.Topics: %q: want a topic outside of ih/, without $, with the "+
				"variable %s at most", t, deviceVariable)
		}
	}
	for _, r := range o.Routes {
		if !mqtt.ValidFilter(r) {
			return nil, fmt.Errorf("testbroker: MQTTv5Options.Routes: %q is no topic filter", r)
		}
	}
	o.Topics, o.Routes = slices.Clone(o.Topics), slices.Clone(o.Routes)
	return &Profile{o}, nil
}

// limits returns what the broker announces and enforces.
func (p *Profile) limits() *Options {
	return &Options{
		SessionExpiry: min(cmp.Or(p.SessionExpiry, nextwire.MaxSessionExpiry), nextwire.MaxSessionExpiry),
		KeepAlive:     p.KeepAlive, ReceiveMaximum: p.ReceiveMaximum, MaximumPacketSize: p.MaximumPacketSize,
		NoRetain: true, NoShared: true,
	}
}

// custom reports whether a template lets an identity publish to a topic.
func (p *Profile) custom(id identity.Identity, topic string) bool {
	return slices.ContainsFunc(p.Topics, func(t string) bool {
		t = strings.ReplaceAll(t, deviceVariable, id.Device)
		// Decision: the documents have examples that end in "*", and do not explain them.
		if front, ok := strings.CutSuffix(t, anyLevels); ok {
			return len(topic) > len(front)+1 && strings.HasPrefix(topic, front+"/")
		}
		return t == topic
	})
}

// routed reports whether a route takes the messages on a topic.
func (p *Profile) routed(topic string) bool {
	return p.Routes == nil || slices.ContainsFunc(p.Routes, func(r string) bool { return mqtt.Covers(r, topic) })
}
