package transporttest

import (
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// systemFields are the fields of Pair.Lacks. All are texts.
var systemFields = []struct {
	name string
	of   func(m *transport.Message) *string
}{
	{"Output", func(m *transport.Message) *string { return &m.Output }},
	{"System.To", func(m *transport.Message) *string { return &m.System.To }},
	{"System.UserID", func(m *transport.Message) *string { return &m.System.UserID }},
	{"System.Schema", func(m *transport.Message) *string { return &m.System.Schema }},
	{"System.InterfaceID", func(m *transport.Message) *string { return &m.System.InterfaceID }},
	{"System.ConnectionDeviceID", func(m *transport.Message) *string { return &m.System.ConnectionDeviceID }},
	{"System.ConnectionModuleID", func(m *transport.Message) *string { return &m.System.ConnectionModuleID }},
	{"System.DiagnosticID", func(m *transport.Message) *string { return &m.System.DiagnosticID }},
	{"System.DiagnosticContext", func(m *transport.Message) *string { return &m.System.DiagnosticContext }},
}

// LacksAll are all fields, for Pair.Lacks of protocols to brokers that are no hubs.
func LacksAll() (names []string) {
	for _, f := range systemFields {
		names = append(names, f.name)
	}
	return names
}

// withSystem returns messages with the fields that the protocol has a place for: one message for
// each, and one with all.
func (p *probe) withSystem(besides ...string) []*transport.Message {
	p.Helper()
	if !p.System {
		p.skip("the pair does not check system properties")
	}
	var out []*transport.Message
	all := &transport.Message{ID: "all", Body: []byte("all"), System: new(transport.SystemProperties)}
	for _, f := range systemFields {
		if slices.Contains(p.Lacks, f.name) || slices.Contains(besides, f.name) {
			continue
		}
		m := &transport.Message{ID: f.name, Body: []byte(f.name), System: new(transport.SystemProperties)}
		*f.of(m), *f.of(all) = "a/b c=d&e;f "+f.name+" 50%25", "all, "+f.name
		if f.name == "System.To" { // over HTTPS, a hub takes no other address
			m.System.To, all.System.To = p.address(), p.address()
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		p.skip("the protocol has no place for system properties")
	}
	return append(out, all)
}

// address is that of the device's telemetry.
func (p *probe) address() string {
	if p.Creds.ModuleID != "" {
		return "/devices/" + p.Creds.DeviceID + "/modules/" + p.Creds.ModuleID + "/messages/events"
	}
	return "/devices/" + p.Creds.DeviceID + "/messages/events"
}

// requireSystem checks the system properties of a message that arrived. An address that is not
// wanted is that of a message without one: the transport or the hub has added it.
func (p *probe) requireSystem(got, want *transport.Message) {
	p.Helper()
	g, w := *got, *want
	for _, m := range []*transport.Message{&g, &w} {
		if m.System == nil {
			m.System = new(transport.SystemProperties)
		}
	}
	if w.System.To == "" {
		own := *g.System
		own.To, g.System = "", &own
	}
	for _, f := range systemFields {
		if *f.of(&g) != *f.of(&w) {
			p.Errorf("message %q arrived with %s %q, want %q", want.ID, f.name, *f.of(&g), *f.of(&w))
		}
	}
}

func systemPropertiesArrive(p *probe) {
	messages := p.withSystem()
	s := p.start()
	s.send(0, messages...)
	s.awaitDone()
	s.requireDone(len(messages), 1)
	got := p.Hub.Received()
	if len(got) != len(messages) {
		p.Fatalf("the hub got %d messages, want %d", len(got), len(messages))
	}
	for i, want := range messages {
		m := &got[i].Message
		if diff := difference(m, want); diff != "" {
			p.Errorf("message %q arrived with another %s", want.ID, diff)
		}
		p.requireSystem(m, want)
	}
}

func systemPropertiesWithoutAPlaceAreRefused(p *probe) {
	switch {
	case !p.System:
		p.skip("the pair does not check system properties")
	case len(p.Lacks) == 0:
		p.skip("the protocol has a place for all system properties")
	}
	s := p.start()
	accepted := numbered(0, 2)
	messages := []*transport.Message{accepted[0]}
	for _, f := range systemFields {
		if slices.Contains(p.Lacks, f.name) {
			m := &transport.Message{ID: f.name, System: new(transport.SystemProperties)}
			*f.of(m) = "x"
			messages = append(messages, m)
		}
	}
	// no field is used in these: an Input is not sent, and an empty System is as none
	accepted[1].Input, accepted[1].System = "in", new(transport.SystemProperties)
	messages = append(messages, accepted[1])
	s.send(0, messages...)
	s.awaitDone()
	for tag, m := range messages {
		results := s.sink.doneErrors(uint16(tag))
		refused := slices.Contains(p.Lacks, m.ID)
		switch {
		case len(results) != 1:
			p.Errorf("message %q got %d results", m.ID, len(results))
		case !refused && results[0] != nil:
			p.Errorf("message %q: %v", m.ID, results[0])
		case refused && transport.KindOf(results[0]) != transport.Unsupported:
			p.Errorf("a message with %s got %v, want unsupported", m.ID, results[0])
		case refused && !strings.Contains(results[0].Error(), m.ID):
			p.Errorf("the error of a message with %s does not name it: %v", m.ID, results[0])
		}
	}
	p.requireBodies(accepted)
}

func deliveriesHaveTheirSystemProperties(p *probe) {
	messages := p.withSystem("Output")
	s, in := p.inbox()
	hub, ok := in.(SystemInbox)
	if !ok {
		p.skip("the hub sends no system properties")
	}
	at := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	more := &transport.Message{
		ID: "rest", CorrelationID: "c 1", ContentType: "application/json", ContentEncoding: "utf-8",
		Component: "thermostat1", Created: at.Add(-time.Hour), Expires: at, Body: []byte("rest"),
		Properties: []transport.Property{{Name: "traceparent", Value: "00-a-b-01"}, {Name: "level", Value: "high"}},
	}
	messages = append(messages, more)
	for i, m := range messages {
		hub.DeliverMessage(m)
		p.eventually("a message was not delivered", func() bool { return len(s.sink.deliveredMessages()) > i })
		_, refs := s.sink.delivered()
		s.Do(&transport.Request{Op: transport.OpSettle, Ref: refs[i], Outcome: transport.OutcomeAccept})
	}
	p.eventually("accepted messages stay at the hub", func() bool { return hub.Undelivered() == 0 })
	synctest.Wait()
	got := s.sink.deliveredMessages()
	for i, want := range messages {
		m := got[i]
		if m.Input != hub.Input() {
			p.Errorf("message %q came by input %q, want %q", want.ID, m.Input, hub.Input())
		}
		p.requireSystem(m, want)
		if want != more {
			continue
		}
		m.Properties = slices.DeleteFunc(m.Properties, func(p transport.Property) bool { // a hub adds some
			return !slices.Contains(want.Properties, p)
		})
		sortProperties(m) // AMQP has a map of them
		sortProperties(want)
		if diff := difference(m, want); diff != "" {
			p.Errorf("message %q came with another %s: %.200q, want %.200q", want.ID, diff, []any{*m}, []any{*want})
		}
	}
}
