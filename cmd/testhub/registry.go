package main

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// An entry is a device or module declared on the command line or in the file.
type entry struct {
	id                 string // "device" or "device/module"
	primary, secondary string // keys; empty: the hub makes them
	thumbprints        []string
	authority          bool             // an authority signs its certificate
	cert               *tls.Certificate // that testhub made for it; nil = none
	disabled           bool
	from               string // where it is declared, for errors
}

// registry holds the declared entries, with the keys that the hub has made.
type registry struct {
	entries []entry
	earlier []string // devices and modules of an earlier run
}

// register registers all declared entries at the hub.
func register(hub *testbroker.Hub, s *settings) (*registry, error) {
	r := &registry{entries: s.devices}
	if s.file != "" {
		entries, authorities, err := readFile(s.file)
		if err != nil {
			return nil, err
		}
		r.entries = append(entries, r.entries...)
		for _, a := range authorities {
			if err := hub.AddCA(a); err != nil {
				return nil, fmt.Errorf("flag -devices: %s: authorities: %w", s.file, err)
			}
		}
	}
	r.entries = append(r.entries, s.edge.entries(r.entries)...)
	known := hub.Devices() // of an earlier run
	for _, d := range known {
		r.earlier = append(r.earlier, join(d.ID, d.ModuleID))
	}
	if len(r.entries)+len(known) == 0 {
		r.entries = []entry{{id: "dev-1", from: "flag -device"}}
	}
	for i := range r.entries {
		e := &r.entries[i]
		add := e.register
		if slices.Contains(r.earlier, e.id) {
			add = e.resume
		} else if s.profile.mqttv5 {
			e.certify()
		}
		if err := add(hub); err != nil {
			if s.file == "" || !strings.Contains(e.from, s.file) { // not the content of the file
				err = misuse{err}
			}
			return nil, fmt.Errorf("%s: device %q: %w", e.from, e.id, err)
		}
	}
	return r, nil
}

// names returns the names of all devices and modules, the declared ones first.
func (r *registry) names(hub *testbroker.Hub) (all []string) {
	for _, e := range r.entries {
		all = append(all, e.id)
	}
	declared := len(all)
	for _, d := range hub.Devices() {
		if id := join(d.ID, d.ModuleID); !slices.Contains(all[:declared], id) {
			all = append(all, id)
		}
	}
	return all
}

// resume takes over an entry that the hub has from an earlier run. It stays as it is, except for
// keys that are declared.
func (e *entry) resume(hub *testbroker.Hub) error {
	d, err := hub.Device(e.id)
	if err != nil {
		return err
	}
	given := e.primary + e.secondary
	e.primary, e.secondary = cmp.Or(e.primary, d.PrimaryKey), cmp.Or(e.secondary, d.SecondaryKey)
	if given == "" || d.PrimaryKey == e.primary && d.SecondaryKey == e.secondary {
		return nil
	}
	return hub.SetKeys(e.id, e.primary, e.secondary)
}

// register registers the entry at the hub and records its keys.
func (e *entry) register(hub *testbroker.Hub) error {
	var err error
	switch device, module, isModule := cutModule(e.id); {
	case e.authority:
		_, err = hub.AddDeviceCA(e.id)
	case len(e.thumbprints) > 0:
		_, err = hub.AddDeviceX509(e.id, e.thumbprints...)
	case isModule:
		_, err = hub.AddModule(device, module)
	default:
		_, err = hub.AddDevice(e.id)
	}
	if err != nil {
		return err
	}
	d, err := hub.Device(e.id)
	if err != nil {
		return err
	}
	e.primary, e.secondary = cmp.Or(e.primary, d.PrimaryKey), cmp.Or(e.secondary, d.SecondaryKey)
	return e.settle(hub, d)
}

// settle sets the declared keys and status of a registered device.
func (e *entry) settle(hub *testbroker.Hub, d hubdata.Device) error {
	if d.PrimaryKey != e.primary || d.SecondaryKey != e.secondary {
		if err := hub.SetKeys(e.id, e.primary, e.secondary); err != nil {
			return err
		}
	}
	if _, _, isModule := cutModule(e.id); !isModule {
		return hub.SetEnabled(e.id, !e.disabled)
	}
	return nil
}

// restore resets the hub's registry to the declared entries, after changes by back ends. Devices of
// an earlier run stay.
func (r *registry) restore(hub *testbroker.Hub) error {
	for _, d := range hub.Devices() {
		id := join(d.ID, d.ModuleID)
		if !slices.Contains(r.earlier, id) && !slices.ContainsFunc(r.entries, func(e entry) bool { return e.id == id }) {
			hub.RemoveDevice(id) // a module may have been removed with its device
		}
	}
	for _, e := range r.entries {
		d, err := hub.Device(e.id)
		if err != nil {
			err = e.register(hub)
		} else {
			err = e.settle(hub, d)
		}
		if err != nil {
			return fmt.Errorf("device %q: %w", e.id, err)
		}
	}
	return nil
}

// readFile reads the device file and the certificates that it names.
func readFile(name string) (entries []entry, authorities []*x509.Certificate, err error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, fmt.Errorf("flag -devices: %w; give a file that can be read", err)
	}
	var files []string
	bad := readObject(withoutMark(raw), "",
		list("devices", func(path string, raw json.RawMessage) *refusal { return readDevice(raw, path, "", &entries) }),
		list("authorities", func(path string, raw json.RawMessage) *refusal {
			var file string
			if bad := text(path, &file).take(raw, path); bad != nil {
				return bad
			}
			files = append(files, file)
			return nil
		}),
	)
	if bad != nil {
		return nil, nil, fmt.Errorf("flag -devices: %s: %w", name, bad)
	}
	for i := range entries {
		entries[i].from = "flag -devices: " + name
	}
	for _, file := range files {
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(name), file)
		}
		certs, err := readCerts(file)
		if err != nil {
			return nil, nil, fmt.Errorf("flag -devices: %s: authorities, relative to that file: %w", name, err)
		}
		authorities = append(authorities, certs...)
	}
	return entries, authorities, nil
}

// readDevice parses an object of the file: a device with its modules or, if of is not empty, a
// module of that device.
func readDevice(raw json.RawMessage, path, of string, all *[]entry) *refusal {
	var e entry
	var modules []json.RawMessage
	fields := []field{
		text("id", &e.id), key("primaryKey", &e.primary), key("secondaryKey", &e.secondary),
		list("thumbprints", func(path string, raw json.RawMessage) *refusal {
			var v string
			bad := text(path, &v).take(raw, path)
			e.thumbprints = append(e.thumbprints, v)
			return bad
		}),
		flagField("certificateAuthority", &e.authority),
	}
	if of == "" {
		fields = append(fields, flagField("disabled", &e.disabled),
			list("modules", func(_ string, raw json.RawMessage) *refusal {
				modules = append(modules, raw)
				return nil
			}))
	}
	if bad := readObject(raw, path, fields...); bad != nil {
		return bad
	}
	switch {
	case e.id == "":
		return bad(path+".id", "is missing", "name the device")
	case e.authority && len(e.thumbprints) > 0:
		return bad(path+".thumbprints", "is there together with certificateAuthority", "leave one of them out")
	case (e.authority || len(e.thumbprints) > 0) && e.primary+e.secondary != "":
		return bad(path+".primaryKey", "is there for a device with a certificate", "leave out the keys, or the certificate")
	}
	if of != "" {
		e.id = of + "/" + e.id
	}
	*all = append(*all, e)
	for i, raw := range modules {
		if bad := readDevice(raw, fmt.Sprintf("%s.modules[%d]", path, i), e.id, all); bad != nil {
			return bad
		}
	}
	return nil
}

func readCerts(name string) ([]*x509.Certificate, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%w; give a file that can be read", err)
	}
	var all []*x509.Certificate
	for rest := bytes.TrimSpace(raw); len(rest) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, cert)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no certificate; give a file in PEM", name)
	}
	return all, nil
}
