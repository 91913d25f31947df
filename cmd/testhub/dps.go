package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// dpsOwner is the policy of back ends of the provisioning service, with the name that the service
// uses.
const dpsOwner = "provisioningserviceowner"

// A provider is a provisioning service with its hubs besides the first one.
type provider struct {
	dps      *testbroker.DPS
	updates  *publisher // nil: none
	hubs     []*testbroker.Hub
	issue    func(*x509.CertificateRequest) ([][]byte, error) // nil: no certificates are issued
	enrolled []dpsdata.Enrollment                             // as declared, with their keys
	hand     []handOver                                       // what devices need
}

// A handOver is what a device needs to register, or a factory to make devices of a group. It is
// printed once.
type handOver struct {
	id, key string // the key is empty with a certificate or a TPM
	group   bool
}

// openProvider makes the service and its hubs, linked, and the enrollments. The caller closes the
// provider even if there is an error.
func openProvider(first *testbroker.Hub, s *settings, tell func(line), kept *state) (*provider, error) {
	d := &provider{}
	if s.profile.any() { // a hub with the profile takes no keys
		d.issue = testbroker.NewCertAuthority("testhub devices").Issuer(0)
	}
	told := func(of string) func(event.Event) {
		return func(e event.Event) {
			l := hubLine(e)
			l.Service, l.text = of, of+" "+l.text
			tell(l)
		}
	}
	var err error
	d.dps, err = testbroker.NewDPS(&testbroker.DPSOptions{
		HostName: s.dps.host, IDScope: s.dps.scope, RetryAfter: s.dps.after, Seed: s.seed, Keep: s.keep,
		OnEvent: told("dps"), Store: kept.part(dpsPart),
		Names: s.certs.names, Authority: s.certs.read,
	})
	if err != nil {
		if strings.Contains(err.Error(), "Options.Store") {
			return d, hubError(err)
		}
		name := "dps-host"
		if strings.Contains(err.Error(), "IDScope") {
			name = "scope"
		}
		return d, misused("flag -%s: %w", name, err)
	}
	if d.updates, err = s.updates.open(s.seed, kept.part(updatePart)); err != nil {
		return d, err
	}
	if d.updates != nil {
		d.dps.LinkUpdates(d.updates.Updates)
		first.LinkUpdates(d.updates.Updates)
	}
	if err := d.dps.Link(first); err != nil {
		return d, err
	}
	for _, h := range s.dps.hubs {
		hub, err := testbroker.New(&testbroker.Options{
			HostName: h.name, MQTTv5: s.profile.forLinked(h.name), Seed: s.seed, Keep: s.keep, OnEvent: told(h.name),
			Store: kept.part(linkedPart + strings.ToLower(h.name)), Names: s.certs.names, Authority: s.certs.read,
		})
		if err != nil {
			if strings.Contains(err.Error(), "Options.Store") {
				return d, hubError(err)
			}
			return d, misused("flag -link: %w; give a name of letters, digits, dots and hyphens", err)
		}
		d.hubs = append(d.hubs, hub)
		if d.updates != nil {
			hub.LinkUpdates(d.updates.Updates)
		}
		if err := d.dps.Link(hub); err != nil {
			return d, misused("flag -link: %w", err)
		}
	}
	return d, d.enroll(s.dps.enrol)
}

// close closes everything but the first hub.
func (d *provider) close() error {
	if d == nil {
		return nil
	}
	var all []error
	if d.dps != nil {
		all = append(all, d.dps.Close())
	}
	d.updates.close()
	for _, h := range d.hubs {
		all = append(all, h.Close())
	}
	return errors.Join(all...)
}

// enroll adds the declared enrollments, groups first because devices of groups get keys from them.
func (d *provider) enroll(declared []enrolled) error {
	keys := map[string]string{} // of groups
	for _, groups := range []bool{true, false} {
		for _, e := range declared {
			if e.group != groups {
				continue // in the other turn
			}
			if e.of != "" {
				if keys[e.of] == "" {
					return misused("flag -enroll: %q: there is no group %s with keys; add -group %s", e.of+"/"+e.id, e.of, e.of)
				}
				d.hand = append(d.hand, handOver{id: e.id, key: dpsdata.DeriveKey(keys[e.of], e.id)})
				continue
			}
			made, err := d.resume(e)
			if err != nil {
				made, err = d.add(e)
			}
			if errors.Is(err, testbroker.ErrEnrolled) {
				err = fmt.Errorf("%w; give each id and each group once", err)
			}
			if err != nil {
				if _, file := errors.AsType[*fs.PathError](err); !file {
					err = misuse{err}
				}
				return fmt.Errorf("flag -%s: %q: %w", e.flag(), e.id, err)
			}
			if e.group {
				keys[e.id] = made.PrimaryKey
			}
			if e.tpm != nil {
				made.PrimaryKey = "" // the device gets it encrypted
			}
			d.hand = append(d.hand, handOver{id: e.id, key: made.PrimaryKey, group: e.group})
		}
	}
	return nil
}

// resume takes over an enrollment that the service has from an earlier run. It stays as it is.
func (d *provider) resume(e enrolled) (dpsdata.Enrollment, error) {
	if slices.ContainsFunc(d.enrolled, func(made dpsdata.Enrollment) bool { return strings.EqualFold(made.ID, e.id) }) {
		return dpsdata.Enrollment{}, testbroker.ErrEnrolled // declared twice
	}
	known, err := d.dps.Enrollment(e.id)
	if err == nil && known.Group != e.group {
		err = testbroker.ErrEnrolled
	}
	if err == nil && d.issue != nil { // it was not kept
		known.Issue = d.issue
		err = d.dps.Change(e.id, func(e *dpsdata.Enrollment) { e.Issue = d.issue })
	}
	if err == nil {
		d.enrolled = append(d.enrolled, known)
	}
	return known, err
}

func (d *provider) add(e enrolled) (dpsdata.Enrollment, error) {
	var certs []*x509.Certificate
	if e.file != "" {
		var err error
		if certs, err = readCerts(e.file); err != nil {
			return dpsdata.Enrollment{}, err
		}
	}
	// Every device goes to the first hub, until a test moves its enrollment.
	made, err := d.dps.Enroll(dpsdata.Enrollment{
		ID: e.id, Group: e.group, Certificates: certs, EndorsementKey: e.tpm, Allocation: dpsdata.AllocationFixed,
		Issue: d.issue,
	})
	if err == nil {
		d.enrolled = append(d.enrolled, made)
	}
	return made, err
}

// reset makes the service as new: without registrations, and with the enrollments as declared.
func (d *provider) reset() error {
	if d == nil {
		return nil
	}
	d.dps.Drop()
	if d.updates != nil {
		d.updates.Reset()
	}
	for _, r := range d.dps.Registrations() {
		d.dps.DeleteRegistration(r.ID) // it may have been deleted with its enrollment
	}
	for _, e := range d.dps.Enrollments() {
		d.dps.Delete(e.ID)
	}
	for _, e := range d.enrolled {
		if _, err := d.dps.Enroll(e); err != nil {
			return err
		}
	}
	return nil
}

// A readyHub is a hub, or the provisioning service, in the first line with -json.
type readyHub struct {
	Host      string            `json:"host"`
	Profile   string            `json:"profile,omitempty"` // empty = classic
	Addresses map[string]string `json:"addresses"`
	Ports     map[string]int    `json:"ports"`
	Notes     []string          `json:"notes,omitempty"` // what a person should know about them
}

// readyDPS is the provisioning service in the first line with -json.
type readyDPS struct {
	readyHub
	IDScope string `json:"idScope"`
	// Enrolled has what devices and factories need, with keys.
	Enrolled []readyEnrollment `json:"enrolled"`
	Service  readyPolicy       `json:"service"`
	Updates  bool              `json:"updates,omitempty"` // there is an update service
	updates  string            // for humans: how many updates it has, and from where
}

type readyEnrollment struct {
	ID    string `json:"id"`
	Group bool   `json:"group,omitempty"`
	Key   string `json:"key,omitempty"`
}

// listener is a hub or a provisioning service.
type listener interface {
	HostName() string
	Listen(p testbroker.Port, addr string) (net.Addr, error)
}

// open opens the ports. Errors name the flag of a port: the prefix and its name, or the whole flag.
func open(l listener, p *ports, flagOf func(port string) string) (readyHub, error) {
	r := readyHub{Host: l.HostName(), Addresses: map[string]string{}, Ports: map[string]int{}}
	for _, at := range p.all() {
		if *at.addr == off {
			continue
		}
		addr, err := l.Listen(at.port, *at.addr)
		if errors.Is(err, syscall.EACCES) && slices.Contains(p.chosen, at.name) {
			if addr, err = listenHigh(l, at); err == nil {
				r.Notes = append(r.Notes, highPortNote(at, addr))
			}
		}
		if err != nil {
			return r, listenError(flagOf(at.name), *at.addr, err)
		}
		r.Addresses[at.name], r.Ports[at.name] = addr.String(), addr.(*net.TCPAddr).Port
	}
	return r, nil
}

// listen opens the ports of the service and its hubs, and adds them to the ready object.
func (d *provider) listen(r *readyObject, s *settings) error {
	owner, err := policy(d.dps, dpsOwner, func() (hubdata.Policy, error) { return d.dps.AddPolicy(dpsOwner) })
	if err != nil {
		return err
	}
	r.DPS = &readyDPS{IDScope: d.dps.IDScope(), Service: readyPolicy{owner.Name, owner.ConnectionString()},
		Enrolled: []readyEnrollment{}}
	if r.DPS.readyHub, err = open(d.dps, &s.dps.ports, func(port string) string { return "dps-" + port }); err != nil {
		return err
	}
	for i, hub := range d.hubs {
		at, err := open(hub, &s.dps.hubs[i].ports, func(string) string { return "link" })
		if err != nil {
			return err
		}
		if s.profile.forLinked(at.Host) != nil {
			at.Profile = nextwire.ProfileMQTTv5
		}
		r.Hubs = append(r.Hubs, at)
	}
	if d.updates != nil {
		r.DPS.Updates = true
		r.DPS.updates = fmt.Sprintf("%d from %s", len(d.updates.Updates.Updates()), d.updates.dir)
	}
	for _, h := range d.hand {
		r.DPS.Enrolled = append(r.DPS.Enrolled, readyEnrollment{h.id, h.group, h.key})
	}
	return nil
}

// settings returns shell variables for a device, or for a factory that makes devices of a group.
// The names are those in the examples of the official SDKs. Those without a value are left out.
func (r *readyDPS) settings(e readyEnrollment) [][2]string {
	all := [][2]string{{"PROVISIONING_HOST", r.Host}, {"PROVISIONING_IDSCOPE", r.IDScope}}
	if e.ID != "" && !e.Group {
		all = append(all, [2]string{"PROVISIONING_REGISTRATION_ID", e.ID})
	}
	switch {
	case e.Key == "": // a certificate or a TPM proves who the device is
	case e.Group:
		all = append(all, [2]string{"PROVISIONING_MASTER_SYMMETRIC_KEY", e.Key})
	default:
		all = append(all, [2]string{"PROVISIONING_SYMMETRIC_KEY", e.Key})
	}
	return all
}

// firstDevice returns what the first enrolled device needs; the zero value if there is none.
func (r *readyDPS) firstDevice() readyEnrollment {
	for _, e := range r.Enrolled {
		if !e.Group {
			return e
		}
	}
	return readyEnrollment{}
}

// authorities returns the certificates that clients of the service and its hubs must trust, in PEM.
func (d *provider) authorities() []byte {
	if d == nil {
		return nil
	}
	all := [][]byte{d.dps.CAPEM()}
	for _, h := range d.hubs {
		all = append(all, h.CAPEM())
	}
	return slices.Concat(all...)
}

// linked returns the hubs besides the first.
func (d *provider) linked() []*testbroker.Hub {
	if d == nil {
		return nil
	}
	return d.hubs
}
