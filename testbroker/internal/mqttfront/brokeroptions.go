package mqttfront

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// Options are the settings of a plain broker.
type Options hubdata.BrokerOptions

// devicePlaceholder stands for the identity in topic templates.
const devicePlaceholder = "{device}"

// A broker neither repeats a message on the same connection nor gives it up.
const (
	defaultLock       = 10 * 365 * 24 * time.Hour
	defaultDeliveries = 1 << 30
	defaultQueue      = 1000
)

// Queues returns the settings of the C2D queues with the defaults of a broker.
func Queues(o hubdata.C2DOptions) hubdata.C2DOptions {
	o.Queue = cmp.Or(max(o.Queue, 0), defaultQueue)
	o.Lock = cmp.Or(max(o.Lock, 0), defaultLock)
	o.MaxDeliveries = cmp.Or(max(o.MaxDeliveries, 0), defaultDeliveries)
	return o
}

// WithDefaults returns the settings with defaults, or what is wrong with them.
func (o Options) WithDefaults() (*Options, error) {
	o.Telemetry = cmp.Or(o.Telemetry, "devices/{device}/up/#")
	o.Commands = cmp.Or(o.Commands, "devices/{device}/down/#")
	o.CommandQoS = cmp.Or(o.CommandQoS, 1)
	for _, t := range [...]string{o.Telemetry, o.Commands} {
		plain := strings.ReplaceAll(t, devicePlaceholder, "x")
		if !mqtt.ValidFilter(plain) || strings.ContainsAny(plain, "{}") || plain == t {
			return nil, fmt.Errorf("testbroker: BrokerOptions: %q: want a topic filter with {device}", t)
		}
	}
	if !mqtt.ValidName(o.commandTopic(identity.Identity{Device: "x"})) {
		return nil, fmt.Errorf("testbroker: BrokerOptions.Commands: %q: # may be its only wildcard", o.Commands)
	}
	if o.CommandQoS > 2 {
		return nil, fmt.Errorf("testbroker: BrokerOptions.CommandQoS: %d", o.CommandQoS)
	}
	return &o, nil
}

func (o *Options) mayPublish(id identity.Identity, topic string) bool {
	return mqtt.Covers(strings.ReplaceAll(o.Telemetry, devicePlaceholder, id.String()), topic)
}

func (o *Options) maySubscribe(id identity.Identity, filter string) bool {
	return mqtt.Covers(strings.ReplaceAll(o.Commands, devicePlaceholder, id.String()), filter)
}

// commandTopic returns the topic of C2D messages that name none.
func (o *Options) commandTopic(id identity.Identity) string {
	return strings.TrimSuffix(strings.ReplaceAll(o.Commands, devicePlaceholder, id.String()), "/#")
}

// Topic returns the topic of a C2D message.
func (o *Options) Topic(m hubdata.C2D, id identity.Identity) (string, error) {
	topic := cmp.Or(m.Topic, o.commandTopic(id))
	if !mqtt.ValidName(topic) {
		return "", fmt.Errorf("testbroker: C2D message for %q, which is no topic name", topic)
	}
	return topic, nil
}

// URL returns the URL of a plain broker for a device; empty at other hubs. A placeholder for a
// module is written as clients write it.
func (f *Front) URL(d hubdata.Device, scheme, addr string) string {
	if _, ok := f.dialect.(plain); !ok {
		return ""
	}
	u := url.URL{Scheme: scheme, Host: addr, Path: "/"}
	name, placeholder := identity.Identity{Device: d.ID, Module: d.ModuleID}, devicePlaceholder
	query := "device=" + url.QueryEscape(d.ID)
	if d.ModuleID != "" {
		placeholder += "/{module}"
		query += "&module=" + url.QueryEscape(d.ModuleID)
	}
	switch {
	case f.options.Password != "":
		u.User = url.UserPassword(name.String(), f.options.Password)
	case d.PrimaryKey != "":
		u.User = url.UserPassword(name.String(), d.PrimaryKey)
	}
	parameter := func(name, filter string) {
		filter = strings.ReplaceAll(filter, devicePlaceholder, placeholder)
		query += "&" + name + "=" + strings.NewReplacer("#", "%23", "+", "%2B", "%", "%25", "&", "%26").Replace(filter)
	}
	if topic := strings.TrimSuffix(f.options.Telemetry, "/#"); mqtt.ValidName(topic) {
		parameter("telemetry", topic)
	}
	parameter("commands", f.options.Commands)
	u.RawQuery = query
	return u.String()
}
