package main

import (
	"cmp"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/times"
)

// dpsSettings are the flags about a provisioning service (DPS).
type dpsSettings struct {
	on    bool
	host  string
	scope string
	after time.Duration // as DPSOptions.RetryAfter
	ports
	hubs  []hubSettings // besides the first
	enrol []enrolled
	given []string // flags of the service that need one
}

// hubSettings are a hub besides the first.
type hubSettings struct {
	name, ip string
	ports
}

// enrolled is an enrollment from the command line.
type enrolled struct {
	id    string
	group bool
	of    string // the group whose key gives that of the device; empty = its own
	file  string // with the certificate; empty = keys
	tpm   []byte // the endorsement key of its TPM; nil = none
}

func (e enrolled) flag() string {
	switch {
	case e.group:
		return "group"
	case e.tpm != nil:
		return "tpm"
	}
	return "enroll"
}

// flags registers the flags.
func (s *dpsSettings) flags(f *flag.FlagSet) {
	f.BoolVar(&s.on, "dps", false,
		"run a provisioning service (DPS) beside the hub; -enroll, -tpm and -group do that as well")
	noting := func(name, usage string, set func(string) error) {
		f.Func(name, usage, func(v string) error {
			s.given = append(s.given, name)
			return set(v)
		})
	}
	noting("dps-host", "the `name` of the provisioning service in requests and its certificate (default localhost)",
		func(v string) error {
			s.host = v
			return nil
		})
	noting("scope", "the ID `scope` of the provisioning service (default 0ne00ABCDEF)", func(v string) error {
		s.scope = v
		return nil
	})
	noting("dps-retry-after", "the `delay` between the polls of a registration, in whole seconds (default 3s)",
		func(v string) error {
			d, err := time.ParseDuration(v)
			if err != nil || d < 0 || d > times.MaxRetryAfter || d%time.Second != 0 {
				return fmt.Errorf("want whole seconds, from 0s to %v", times.MaxRetryAfter)
			}
			s.after = cmp.Or(d, -1)
			return nil
		})
	s.ports.flags(f, "dps-", " of the provisioning service", "127.0.0.2")
	noting("link", "run another hub of this `name`, linked to the provisioning service, or as name=ip with its ports at "+
		"that address (default 127.0.0.3 and so on); repeatable", func(v string) error {
		name, ip, _ := strings.Cut(v, "=")
		if name == "" || strings.HasSuffix(v, "=") || strings.Contains(ip, ":") && net.ParseIP(ip) == nil {
			return errors.New("want name, or name=ip without a port")
		}
		s.hubs = append(s.hubs, hubSettings{name: name, ip: ip})
		return nil
	})
	f.Func("enroll", "enroll a device `id` with new keys, id=file with the certificate in that PEM file, or group/id to "+
		"print the keys of a device of a -group; repeatable", func(v string) error { return s.enroll(v, false) })
	f.Func("tpm", "enroll a device as id=`key`, with the endorsement key of its TPM, a TPM2B_PUBLIC in base64; repeatable",
		func(v string) error {
			id, text, _ := strings.Cut(v, "=")
			key, err := base64.StdEncoding.DecodeString(text)
			if id == "" || len(key) == 0 || err != nil {
				return errors.New("want id=key, with the endorsement key in base64")
			}
			s.enrol = append(s.enrol, enrolled{id: id, tpm: key})
			return nil
		})
	f.Func("group",
		"enroll a group of devices `name` with new keys, or name=file with the certificate of their authority "+
			"in that PEM file; repeatable", func(v string) error { return s.enroll(v, true) })
}

func (s *dpsSettings) enroll(v string, group bool) error {
	id, file, withFile := strings.Cut(v, "=")
	e := enrolled{id: id, group: group, file: file}
	if of, device, member := strings.Cut(id, "/"); member && !group {
		e.of, e.id = of, device
	}
	if e.id == "" || withFile && (file == "" || e.of != "") {
		if group {
			return errors.New("want name, or name=file.pem")
		}
		return errors.New("want id, id=file.pem, or group/id")
	}
	s.enrol = append(s.enrol, e)
	return nil
}

// complete sets the defaults and checks the settings. The service and each further hub have the
// same ports as the first hub, at addresses of their own.
func (s *dpsSettings) complete(firstHub string, free bool) error {
	s.on = s.on || len(s.enrol) > 0
	for _, at := range s.all() {
		if *at.addr != "" {
			s.given = append(s.given, "dps-"+at.name)
		}
	}
	if !s.on {
		if len(s.given) > 0 {
			return fmt.Errorf("flag -%s: there is no provisioning service; add -dps, -enroll, -tpm or -group", s.given[0])
		}
		return nil
	}
	s.host = cmp.Or(s.host, "localhost")
	beside := func(n int) string { return fmt.Sprintf("127.0.0.%d", n) }
	if free {
		beside = func(int) string { return "127.0.0.1" }
	}
	if err := s.addresses("dps-", beside(2), free); err != nil {
		return err
	}
	names := []string{strings.ToLower(firstHub)}
	for i := range s.hubs {
		h := &s.hubs[i]
		if slices.Contains(names, strings.ToLower(h.name)) {
			return fmt.Errorf("flag -link: there is a hub named %s already; give another name, or the first hub another one "+
				"with -host", h.name)
		}
		names = append(names, strings.ToLower(h.name))
		if err := h.addresses("link", cmp.Or(h.ip, beside(3+i)), free); err != nil {
			return err
		}
	}
	return nil
}
