package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
)

// idleCase is what the budget of an idle client depends on.
type idleCase struct {
	over           string
	secure, outage bool
}

// idleBudgets are the goroutines and the KB that an idle client may take. MQTT has its goal, with
// one goroutine only while a handler runs; the others, and MQTT after an outage, have their
// measured cost plus 10 %. After an outage all clients dial at once, which leaves gaps in the heap,
// and lets the Go runtime begin goroutines with stacks of 4 KB instead of 2.
var idleBudgets = map[idleCase]struct{ goroutines, kb float64 }{
	{"mqtt", false, false}: {3, 16}, {"mqtt", true, false}: {3, 32},
	{"mqtt", false, true}: {3, 29}, {"mqtt", true, true}: {3, 37},
	{"amqp", false, false}: {3, 31}, {"amqp", true, false}: {3, 48},
	{"amqp", false, true}: {3, 34}, {"amqp", true, true}: {3, 57},
	{"paho", false, false}: {13, 68}, {"paho", true, false}: {13, 91}, {"paho", false, true}: {13, 77},
}

// IdleReport is the cost of an open client without traffic.
type IdleReport struct {
	IdleSettings
	Goroutines float64 // per client
	// Resident memory per client in KB (1024 bytes): in total, and the anonymous part, which
	// excludes the program's code and files.
	RSS, Anon float64
	// Heap and Stacks are the parts that the Go runtime counts, in KB per client.
	Heap, Stacks float64
	// CPU is the processor time of a client's minute, over Rest.
	CPU time.Duration
}

// Over returns an error with the budget if it is exceeded. Clients that have sent something, and
// those of the raw library, have none.
func (r *IdleReport) Over() error {
	b, ok := idleBudgets[idleCase{r.Transport, r.Secure, r.Outage}]
	if ok && !r.Raw && !r.Sent && (r.Goroutines > b.goroutines || r.Anon > b.kb) {
		return fmt.Errorf("idle client: %.2f goroutines and %.1f KB; the budget is %.0f and %.0f KB", r.Goroutines, r.Anon,
			b.goroutines, b.kb)
	}
	return nil
}

// IdleSettings configure the measurement.
type IdleSettings struct {
	Clients   int
	Transport string        // "mqtt", "amqp", or "paho" for MQTT on that client; with Raw also "autopaho"
	Secure    bool          // over TLS
	Raw       bool          // clients of the raw library instead, for comparison
	Sent      bool          // each has sent a message before; this has no memory budget
	Outage    bool          // after an outage of 3 s; not with Raw, nor Bare
	Bare      bool          // connected to the responder that only acknowledges, not to a hub
	Rest      time.Duration // how long the processor time is measured
}

// idleOrder is the input of the child.
type idleOrder struct {
	Access access
	IdleSettings
}

// Idle opens clients in a child process, each with its own connection to a hub in this one, and
// measures their cost.
func Idle(ctx context.Context, s IdleSettings) (*IdleReport, error) {
	if (s.Raw || s.Bare) && s.Outage {
		return nil, errors.New("idle: raw clients and the bare responder have no outage; leave one of the two away")
	}
	protocol := MQTT
	if s.Transport == "amqp" {
		protocol = AMQP
	}
	if s.Bare {
		l, a, err := listenBare(protocol, s.Secure)
		if err != nil {
			return nil, err
		}
		defer l.Close()
		for i := range s.Clients {
			a.Devices = append(a.Devices, identity{fmt.Sprintf("dev-%d", i+1), a.Devices[0].Key})
		}
		r := new(IdleReport)
		return r, inChild(ctx, "idle", idleOrder{*a, s}, r, nil)
	}
	hub, a, err := newHub(protocol, s.Clients+1, s.Secure, keepFew)
	if err != nil {
		return nil, err
	}
	defer hub.Close()
	r := new(IdleReport)
	return r, inChild(ctx, "idle", idleOrder{*a, s}, r, func() {
		if s.Outage {
			hub.Inject(fault.Fault{Kind: fault.Absent, For: 3 * time.Second})
		}
	})
}

// level is the resource use of the process at one time.
type level struct {
	goroutines                int
	rss, anon, heap, stackMem float64 // KB
}

func idleChild(in *json.Decoder, say func(any)) (any, error) {
	var o idleOrder
	if err := in.Decode(&o); err != nil {
		return nil, err
	}
	over := o.Access.over(o.Transport)
	if over == nil && !o.Raw {
		return nil, fmt.Errorf("idle: no transport %q; give mqtt, amqp or paho", o.Transport)
	}
	clients := make([]idler, o.Clients+1)
	open := func(i int) error {
		creds, err := o.Access.creds(i)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if o.Raw {
			clients[i], err = openRaw(ctx, &o, creds)
			return err
		}
		c, err := device.New(creds, over(), nil)
		if err != nil {
			return err
		}
		clients[i] = idleClient{c}
		if err := c.Open(ctx); err != nil || !o.Sent {
			return err
		}
		return c.Send(ctx, &transport.Message{Body: make([]byte, 100)})
	}

	if err := open(0); err != nil { // one-time state must not count for a client
		return nil, err
	}
	before, err := measure()
	if err != nil {
		return nil, err
	}
	if err := each(1, len(clients), open); err != nil {
		return nil, err
	}
	say("ready")
	connections := uint64(1)
	if o.Outage {
		connections = 2
		for _, c := range clients {
			if err := connected(context.Background(), c.(idleClient).Client, connections); err != nil {
				return nil, err
			}
		}
	}
	after, err := measure()
	if err != nil {
		return nil, err
	}
	for i, c := range clients {
		if !c.idle(connections) {
			return nil, fmt.Errorf("client %d has lost its connection", i)
		}
	}
	n := float64(len(clients) - 1)
	cpu := cpuTime()
	time.Sleep(o.Rest)
	cpu = cpuTime() - cpu
	return &IdleReport{
		CPU:          time.Duration(float64(cpu) / n / max(o.Rest.Minutes(), 1e-9)),
		IdleSettings: o.IdleSettings, Goroutines: float64(after.goroutines-before.goroutines) / n,
		RSS: (after.rss - before.rss) / n, Anon: (after.anon - before.anon) / n,
		Heap: (after.heap - before.heap) / n, Stacks: (after.stackMem - before.stackMem) / n,
	}, nil
}

// idler is an open client.
type idler interface {
	// idle reports whether this connection, counted from 1, is still up.
	idle(connection uint64) bool
}

type idleClient struct{ *device.Client }

func (c idleClient) idle(connection uint64) bool {
	return c.Stats().Connections == connection && c.Status().State == device.StateConnected
}

// idleRaw is a client of a raw library.
type idleRaw func() (up bool)

func (c idleRaw) idle(uint64) bool { return c() }

// openRaw makes a client of the raw library with a connection to the same peer.
func openRaw(ctx context.Context, o *idleOrder, creds *transport.Credentials) (idler, error) {
	switch o.Transport {
	case "amqp":
		conn, err := openGoAMQP(ctx, &o.Access, creds)
		if err != nil {
			return nil, err
		}
		session, err := conn.NewSession(ctx, nil)
		if err != nil {
			return nil, err
		}
		if _, err = session.NewSender(ctx, eventsAddress(creds), nil); err != nil {
			return nil, err
		}
		return idleRaw(func() bool { return conn.Err() == nil }), nil
	case "autopaho":
		c, _, err := connectAutopaho(&o.Access, creds.DeviceID, nil, nil) // ends with the process
		return idleRaw(func() bool {
			ctx, cancel := opening()
			defer cancel()
			return c.AwaitConnection(ctx) == nil
		}), err
	}
	options, err := o.Access.rawOptions(ctx, creds)
	if err != nil {
		return nil, err
	}
	c := paho.NewClient(options.SetCleanSession(false))
	if t := c.Connect(); t.Wait() && t.Error() != nil {
		return nil, t.Error()
	}
	if o.Sent {
		if t := c.Publish(telemetryTopic(creds), 1, false, make([]byte, 100)); t.Wait() && t.Error() != nil {
			return nil, t.Error()
		}
	}
	return idleRaw(c.IsConnectionOpen), nil
}

// measure releases garbage and the stacks that grew during a handshake, then measures.
func measure() (l level, err error) {
	for range 6 { // each halves a stack that is too large
		time.Sleep(100 * time.Millisecond)
		runtime.GC()
	}
	debug.FreeOSMemory()
	time.Sleep(100 * time.Millisecond)
	l.goroutines = runtime.NumGoroutine()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	l.heap, l.stackMem = float64(m.HeapInuse)/1024, float64(m.StackInuse)/1024
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return l, err
	}
	for name, value := range map[string]*float64{"VmRSS:": &l.rss, "RssAnon:": &l.anon} {
		_, rest, ok := bytes.Cut(status, []byte("\n"+name))
		fields := bytes.Fields(rest)
		if !ok || len(fields) == 0 {
			return l, fmt.Errorf("/proc/self/status has no %s", name)
		}
		if *value, err = strconv.ParseFloat(string(fields[0]), 64); err != nil {
			return l, err
		}
	}
	return l, nil
}

// connected waits until the client has connected that many times.
func connected(ctx context.Context, c *device.Client, connections uint64) error {
	for c.Stats().Connections < connections {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}
