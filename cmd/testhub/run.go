package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hubline-iot/hubline/internal/atomicfile"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// ownerPolicy is the policy of back ends. It has all rights, and the name that the service uses.
const ownerPolicy = "iothubowner"

// farewell bounds each step of the end: answers of the control API in progress, and queued lines.
const farewell = 5 * time.Second

// run runs the program until ctx ends. It returns the exit status: 0, 1 for a failure, 2 for a
// wrong command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	do := func() error { return serve(ctx, s, stdout) }
	if s.config.print {
		do = func() error { return printConfig(s.config.inForce, stdout) }
	}
	if s.health != "" {
		do = func() error { return askHealth(ctx, s.health) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(stderr, "testhub:", err)
		if _, wrong := errors.AsType[misuse](err); wrong {
			return 2
		}
		return 1
	}
	return 0
}

// serve opens the hub, prints its addresses, and serves until ctx ends.
func serve(ctx context.Context, s *settings, stdout io.Writer) (err error) {
	ctx, fail := context.WithCancelCause(ctx)
	cancel := func() { fail(nil) }
	defer cancel()
	kept, err := s.state.open(fail)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kept.close()) }()
	out := newPrinter(stdout, s.json, cancel)
	out.verbose = s.verbose
	lines := newFeed()
	tell := func(l line) {
		out.offer(l)
		lines.offer(l)
	}
	o := &testbroker.Options{HostName: s.host, Gateway: s.edge.forHub(), MQTTv5: s.profile.forHub(s.edge.routes),
		Seed: s.seed, Keep: s.keep, Events: s.events.options, Store: kept.part(hubPart), Limits: s.limits.options(),
		OnEvent: func(e event.Event) { tell(hubLine(e)) }}
	o.AMQP.StrictTypes = s.strict
	if s.broker {
		o.Broker = &testbroker.BrokerOptions{TopicAliases: 16}
	}
	if err := s.certs.apply(o); err != nil {
		return err
	}
	hub, err := testbroker.New(o)
	if err != nil {
		return hubError(err)
	}
	defer func() { err = errors.Join(err, hub.Close()) }()
	var d *provider
	if s.dps.on {
		d, err = openProvider(hub, s, tell, kept)
		defer func() { err = errors.Join(err, d.close()) }()
		if err != nil {
			return err
		}
	}

	reg, err := register(hub, s)
	if err != nil {
		return err
	}
	owner, err := policy(hub, ownerPolicy,
		func() (hubdata.Policy, error) { return hub.AddPolicy(ownerPolicy, hubdata.RightAll) })
	if err != nil {
		return err
	}
	ready := newReady(hub, reg, owner)
	ready.Profile = s.profile.about(s.edge.routes)
	at, err := open(hub, &s.ports, func(port string) string { return port })
	if err != nil {
		return err
	}
	ready.Addresses, ready.Ports, ready.Notes = at.Addresses, at.Ports, at.Notes
	if ready.Events, err = s.events.open(hub, owner, at.Ports); err != nil {
		return err
	}
	if ready.Storage, err = newReadyStorage(hub, at); err != nil {
		return err
	}
	for i := range ready.Devices {
		ready.Devices[i].BrokerURL = brokerURL(hub, ready.Devices[i].Device, ready.addressesOf(hub.HostName())["mqtt"])
	}
	if d != nil {
		if err := d.listen(ready, s); err != nil {
			return err
		}
		d.updates.serveAt(reachable(ready.Addresses), reachable(ready.DPS.Addresses))
	}
	daemon, err := s.edge.open(hub)
	if err != nil {
		return err
	}
	if daemon != nil {
		defer daemon.Close() // removes the socket
		ready.Workload, ready.Modules = daemon.URI(), readyModules(hub, daemon)
	}
	var control net.Listener
	if s.control != off {
		if control, err = s.listenControl(); err != nil {
			return err
		}
		defer control.Close() // closed twice if the control API got it
		ready.Control, ready.ControlToken = controlURL(control.Addr()), s.token
	}
	// Only a hub with all its ports may replace the files of another one.
	var writing sync.Mutex // the file has the newest certificate
	trust := func() []byte { return slices.Concat(hub.CAPEM(), d.authorities()) }
	writeCA := func() (path string, err error) {
		writing.Lock()
		defer writing.Unlock()
		return writeFile("ca", s.ca, trust(), 0o644)
	}
	if ready.CA, err = writeCA(); err != nil {
		return err
	}
	for i := range ready.Devices {
		r := &ready.Devices[i]
		if r.Certificate, err = reg.writeCertificate(r.Device, s.ca); err != nil {
			return err
		}
	}
	if s.env != "" {
		if _, err := writeFile("env", s.env, ready.shell(), 0o600); err != nil {
			return err
		}
	}
	c := newControl(ctx, hub, reg, ready, s.keep)
	c.provider, c.daemon, c.feed, c.guard = d, daemon, lines, guard{s.token}
	c.trust, c.writeCA = trust, writeCA
	for _, h := range d.linked() {
		other := newControl(c.ctx, h, &registry{}, ready, s.keep)
		other.trust, other.writeCA, other.feed = trust, writeCA, lines
		c.others = append(c.others, other)
	}
	defer c.stop()
	if control != nil {
		c.start(control)
	}
	if ready.try, err = firstCommand(ctx, hub, ready); err != nil {
		return err
	}
	if err := out.ready(ready); err != nil {
		return err
	}
	out.start()

	<-ctx.Done()
	c.stop()
	closed := errors.Join(d.close(), hub.Close()) // before the output ends, so that the ends of connections are printed
	return errors.Join(failureOf(ctx), closed, out.end())
}

// writeFile writes a flag's file, and returns its absolute path.
func writeFile(flag, name string, content []byte, mode os.FileMode) (string, error) {
	full, err := filepath.Abs(name)
	if err == nil {
		err = replaceFile(full, content, mode)
	}
	if err != nil {
		return "", fmt.Errorf("flag -%s: %w; give a file in a directory that can be written to", flag, err)
	}
	return full, nil
}

// replaceFile writes a file atomically, so that no reader sees a part of it. A symbolic link stays,
// and what is no file, such as /dev/null or a pipe, is written to: root could replace it.
func replaceFile(name string, content []byte, mode os.FileMode) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(name, content, mode)
	}
	name = atomicfile.Target(name)
	f, err := os.CreateTemp(filepath.Dir(name), ".testhub-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = cmp.Or(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// A readyObject has all addresses. It is the first line with -json.
type readyObject struct {
	Event string `json:"event"`
	Host  string `json:"host"`
	// Profile says that the hub has the MQTT v5 profile, and what goes to the event hub.
	Profile string `json:"profile,omitempty"`
	// Addresses and Ports have the keys mqtt, amqp and https, except those that are off.
	Addresses map[string]string `json:"addresses"`
	Ports     map[string]int    `json:"ports"`
	CA        string            `json:"ca"`
	Control   string            `json:"control,omitempty"`
	// ControlToken is the token of the control API, if it is not on loopback.
	ControlToken string        `json:"controlToken,omitempty"`
	Devices      []readyDevice `json:"devices"`
	Service      readyPolicy   `json:"service"`
	Events       readyEvents   `json:"events"`
	Storage      readyStorage  `json:"storage"`
	DPS          *readyDPS     `json:"dps,omitempty"`
	Hubs         []readyHub    `json:"hubs,omitempty"` // besides the first
	Gateway      string        `json:"gateway,omitempty"`
	Workload     string        `json:"workload,omitempty"`
	Notes        []string      `json:"notes,omitempty"`   // what a person should know about the ports
	Modules      []readyModule `json:"modules,omitempty"` // with the environment of the workload API

	try string // a command that sends a message as the first device, for people
}

// brokerURL returns the URL of a device at a plain broker; empty at a hub, or if the port is off.
func brokerURL(hub *testbroker.Hub, id, at string) string {
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		return ""
	}
	return hub.BrokerURL(id, "mqtts", net.JoinHostPort(hub.HostName(), port))
}

type readyDevice struct {
	Device           string `json:"device"`
	ConnectionString string `json:"connectionString"`
	BrokerURL        string `json:"brokerURL,omitempty"`
	// Certificate is a file with the certificate that testhub made for the device, and its key. For a
	// device that was added later it is the content.
	Certificate string `json:"certificate,omitempty"`
}

type readyPolicy struct {
	Policy           string `json:"policy"`
	ConnectionString string `json:"connectionString"`
}

func newReady(hub *testbroker.Hub, reg *registry, owner hubdata.Policy) *readyObject {
	r := &readyObject{
		Event: "ready", Host: hub.HostName(), Gateway: hub.GatewayName(),
		Devices: []readyDevice{},
		Service: readyPolicy{owner.Name, owner.ConnectionString()},
	}
	for _, id := range reg.names(hub) {
		r.Devices = append(r.Devices, readyDevice{Device: id, ConnectionString: hub.ConnectionString(id)})
	}
	return r
}

// listenError explains how to fix a port that cannot be opened.
func listenError(name, addr string, err error) error {
	fix := "give -free for free ports, another address such as 127.0.0.1:0, or off"
	if name == "link" {
		fix = "give name=ip with an address of this machine where the ports are free, or -free"
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("flag -%s: %s is taken by another program; end that one, or %s", name, addr, fix)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("flag -%s: no permission to use %s: ports below 1024 are for root and programs with "+
			"CAP_NET_BIND_SERVICE; get that right, or %s", name, addr, fix)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("flag -%s: %w; let the process open more files, such as by ulimit -n", name, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("flag -%s: %s is not an address of this machine; %s", name, addr, fix)
	}
	return fmt.Errorf("flag -%s: %w; %s", name, err, fix)
}

// shell returns shell commands that set the variables of the examples and README.md.
func (r *readyObject) shell() []byte {
	var b bytes.Buffer
	set := func(name, v string) {
		if v != "" {
			fmt.Fprintf(&b, "export %s=%s\n", name, quote(v))
		}
	}
	set("HUB", r.Control)
	set("HUB_TOKEN", r.ControlToken)
	if len(r.Devices) > 0 {
		set("HUBLINE_CONNECTION_STRING", r.Devices[0].ConnectionString)
		set("HUBLINE_BROKER_URL", r.Devices[0].BrokerURL)
	}
	if r.DPS != nil {
		for _, v := range r.DPS.settings(r.DPS.firstDevice()) {
			set(v[0], v[1])
		}
	}
	if len(r.Modules) > 0 {
		for _, v := range r.Modules[0].Environment {
			name, value, _ := strings.Cut(v, "=")
			set(name, value)
		}
	}
	return b.Bytes()
}

// page is the address of the page. A token is in the fragment: browsers do not send that to the
// hub, nor to other sites.
func (r *readyObject) page() string {
	if r.ControlToken == "" {
		return r.Control
	}
	return r.Control + "/#token=" + url.QueryEscape(r.ControlToken)
}

// services are the parts beside the hub that the page has panels for.
func (r *readyObject) services() []string {
	all := []string{}
	if r.DPS != nil {
		all = append(all, "dps")
	}
	if r.DPS != nil && r.DPS.Updates {
		all = append(all, "updates")
	}
	return all
}

// public returns the object without secrets.
func (r *readyObject) public() map[string]any {
	raw, err := json.Marshal(r)
	if err != nil {
		panic("testhub: " + err.Error()) // r holds only strings and numbers
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		panic("testhub: " + err.Error())
	}
	delete(m, "event")
	delete(m, "controlToken")
	delete(m, "devices")
	delete(m, "service")
	delete(m, "events")
	delete(m, "storage")
	delete(m, "dps")
	delete(m, "hubs")
	delete(m, "modules")
	m["services"] = r.services()
	return m
}
