package main

import (
	"flag"
	"net"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// eventsSettings are the flags of the endpoint compatible with Event Hubs.
type eventsSettings struct {
	addr    string
	options testbroker.EventOptions
}

func (s *eventsSettings) flags(f *flag.FlagSet) {
	f.StringVar(&s.addr, "events", "127.0.0.1:0", "`address` for AMQP without TLS, for clients of Event Hubs, or off")
	f.IntVar(&s.options.Partitions, "partitions", 4, "`number` of partitions of the event hub, 1 to 32")
	group := func(name string) error {
		s.options.ConsumerGroups = append(s.options.ConsumerGroups, name)
		return nil
	}
	f.Func("consumer-group", "consumer group `name` of the event hub besides $Default; repeatable", group)
	f.Func("event-source", "make events of this `source` too: twinChangeEvents, deviceLifecycleEvents, "+
		"deviceConnectionStateEvents or digitalTwinChangeEvents; repeatable", func(name string) error {
		s.options.Sources = append(s.options.Sources, hubdata.EventSource(name))
		return nil
	})
}

// eventsFlag returns the flag that an error of the hub's settings is about; empty if it is another.
func eventsFlag(err error) string {
	for field, flag := range map[string]string{"EventOptions.Partitions": "partitions",
		"EventOptions.ConsumerGroups": "consumer-group", "EventOptions.Sources": "event-source"} {
		if strings.Contains(err.Error(), field) {
			return flag
		}
	}
	return ""
}

// readyEvents has what clients of Event Hubs need. Plain is for an address without TLS; TLS is for
// the hub's own AMQP port, and WebSocket for its HTTPS port, and clients that trust its
// certificate.
type readyEvents struct {
	Address   string `json:"address,omitempty"`
	Plain     string `json:"connectionString,omitempty"`
	TLS       string `json:"connectionStringTLS,omitempty"`
	WebSocket string `json:"connectionStringWebSocket,omitempty"`
}

// open opens the port without TLS.
func (s *eventsSettings) open(hub *testbroker.Hub, p hubdata.Policy, ports map[string]int) (readyEvents, error) {
	var r readyEvents
	for name, s := range map[string]*string{"amqp": &r.TLS, "https": &r.WebSocket} {
		if port, ok := ports[name]; ok {
			*s = hub.EventsConnectionString(p, net.JoinHostPort(hub.HostName(), strconv.Itoa(port)), false)
		}
	}
	if s.addr == off {
		return r, nil
	}
	addr, err := hub.Listen(testbroker.PortAMQP, s.addr)
	if err != nil {
		return r, listenError("events", s.addr, err)
	}
	r.Address = addr.String()
	r.Plain = hub.EventsConnectionString(p, r.Address, true)
	return r, nil
}

func (r *readyEvents) rows(row func(what, v string)) {
	for _, s := range []string{r.Plain, r.TLS, r.WebSocket} {
		if s != "" {
			row("events", s)
		}
	}
}
