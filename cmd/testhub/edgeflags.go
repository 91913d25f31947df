package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/workload"
)

// edgeSettings are the flags about a gateway and the modules behind it.
type edgeSettings struct {
	gateway  string
	routes   []string
	modules  []string // "device/module"
	workload string   // address; empty: none
}

// defaultWorkload is the address of the workload API if there are modules and no -workload.
const defaultWorkload = "127.0.0.1:0"

// flags registers the flags.
func (s *edgeSettings) flags(f *flag.FlagSet) {
	f.StringVar(&s.gateway, "gateway", "", "put an edge gateway of this host `name` in front of the hub; all devices and "+
		"modules connect to it")
	f.Func("route", "a `route` of the gateway, such as 'FROM /messages/* INTO $upstream'; repeatable (default that one); "+
		"with -profile mqttV5 a topic filter of what goes to the event hub, such as 'ih/+/srv/telemetry' (default all)",
		func(v string) error {
			s.routes = append(s.routes, v)
			return nil
		})
	f.Func("module", "register a module `device/module`, with its device, and print the environment that an edge runtime "+
		"gives it; repeatable", func(v string) error {
		device, module, ok := cutModule(v)
		if !ok || device == "" || module == "" {
			return errors.New("want device/module")
		}
		s.modules = append(s.modules, v)
		return nil
	})
	f.StringVar(&s.workload, "workload", "", "`address` of the workload API for modules, unix:///path or host:port "+
		"(default "+defaultWorkload+" if there is a -module)")
}

// complete sets defaults and checks the settings as far as possible without opening anything.
func (s *edgeSettings) complete(broker, mqttv5 bool) error {
	if len(s.modules) > 0 && s.workload == "" {
		s.workload = defaultWorkload
	}
	switch {
	case s.gateway == "" && len(s.routes) > 0 && !mqttv5:
		return errors.New("flag -route: routes are those of a gateway, or of a hub with the MQTT v5 profile; give -gateway " +
			"or -profile mqttV5 too")
	case s.gateway != "" && broker:
		return errors.New("flag -gateway: a plain broker has no gateway; leave out -broker or -gateway")
	}
	if s.workload == "" {
		return nil
	}
	network, addr := s.address()
	if network == "unix" {
		if !strings.HasPrefix(addr, "/") {
			return fmt.Errorf("flag -workload: %q is no absolute path; give unix:///path", s.workload)
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("flag -workload: %q is not an address; give unix:///path, or host:port such as %s", s.workload,
			defaultWorkload)
	}
	return nil
}

// address returns the address of the workload API.
func (s *edgeSettings) address() (network, addr string) {
	if path, ok := strings.CutPrefix(s.workload, "unix://"); ok {
		return "unix", path
	}
	return "tcp", s.workload
}

// forHub returns the gateway's options; nil for none.
func (s *edgeSettings) forHub() *testbroker.GatewayOptions {
	if s.gateway == "" {
		return nil
	}
	return &testbroker.GatewayOptions{Name: s.gateway, Routes: s.routes}
}

// entries returns the devices and modules of the flag -module that are not declared otherwise.
func (s *edgeSettings) entries(declared []entry) (more []entry) {
	for _, m := range s.modules {
		device, _, _ := cutModule(m)
		for _, id := range []string{device, m} {
			if !slices.ContainsFunc(slices.Concat(declared, more), func(e entry) bool { return e.id == id }) {
				more = append(more, entry{id: id, from: "flag -module"})
			}
		}
	}
	return more
}

// open starts the workload API; nil without one.
func (s *edgeSettings) open(hub *testbroker.Hub) (*workload.Server, error) {
	if s.workload == "" {
		return nil, nil
	}
	w, err := workload.New(hub, nil)
	if err != nil {
		return nil, err
	}
	if _, err := w.Listen(s.address()); err != nil {
		w.Close()
		return nil, fmt.Errorf("flag -workload: %w; give the path of no file in a directory that can be written to, or "+
			"another address", err)
	}
	return w, nil
}

// hubError names the flag in an error of testbroker.New.
func hubError(err error) error {
	if flag := eventsFlag(err); flag != "" {
		return misused("flag -%s: %w", flag, err)
	}
	switch {
	case strings.Contains(err.Error(), "Options.Names"):
		return misused("flag -name: %w; give a name of letters, digits, dots and hyphens, or an IP address", err)
	case strings.Contains(err.Error(), "Options.Authority"):
		return fmt.Errorf("flag -authority: %w", err)
	case strings.Contains(err.Error(), "Options.Store"):
		return fmt.Errorf("flag -state: %w", err)
	case strings.Contains(err.Error(), "GatewayOptions.Routes"):
		return misused("flag -route: %w", err)
	case strings.Contains(err.Error(), "MQTTv5Options.Topics"):
		return misused("flag -topic: %w", err)
	case strings.Contains(err.Error(), "MQTTv5Options.Routes"):
		return misused("flag -route: %w; give one such as ih/+/srv/telemetry", err)
	case strings.Contains(err.Error(), "GatewayOptions.Name"):
		return misused("flag -gateway: %w; give a name of letters, digits, dots and hyphens", err)
	}
	return misused("flag -host: %w; give a name of letters, digits, dots and hyphens", err)
}

// A readyModule is a module with its environment.
type readyModule struct {
	Module      string   `json:"module"`
	Environment []string `json:"environment"` // each "NAME=value"
}

// readyModules returns all modules of the hub.
func readyModules(hub *testbroker.Hub, w *workload.Server) []readyModule {
	all := []readyModule{}
	for _, d := range hub.Devices() {
		if d.ModuleID != "" {
			all = append(all, readyModule{join(d.ID, d.ModuleID), w.Environment(d.ID, d.ModuleID)})
		}
	}
	return all
}

// assignments returns the variables as a shell reads them, to be put after export, or before a
// command.
func (m readyModule) assignments() string {
	var all []string
	for _, v := range m.Environment {
		name, value, _ := strings.Cut(v, "=")
		if strings.Trim(value, shellSafe) != "" {
			value = quote(value)
		}
		all = append(all, name+"="+value)
	}
	return strings.Join(all, " ")
}

// shellSafe are characters that mean nothing to a shell.
const shellSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/:"

// quote returns a text as a word of a shell.
func quote(v string) string { return "'" + strings.ReplaceAll(v, "'", `'\''`) + "'" }
