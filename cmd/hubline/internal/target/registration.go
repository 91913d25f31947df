package target

import (
	"cmp"
	"context"
	"errors"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/transport"
)

// registers reports whether the device registers, rather than having a connection string or a URL.
// The variables of a registration count when nothing else names a device.
func (f *Flags) registers(w *World) bool {
	if f.Registering || f.IDScope != "" || f.RegistrationID != "" {
		return true
	}
	connects := f.Connect != "" || f.File != "" || f.Testhub != "" || w.Getenv(EnvConnect) != "" ||
		w.Getenv(EnvBroker) != ""
	return !connects && w.Getenv(EnvIDScope) != "" && w.Getenv(EnvRegistrationID) != ""
}

// misplaced returns an error for a flag that has no effect beside the others.
func (f *Flags) misplaced(registers bool) error {
	flags := []struct {
		name string
		set  bool
		with bool // the flag belongs to a registration
	}{
		{"-dps", f.DPS != "", true},
		{"-key-file", f.KeyFile != "", true},
		{"-group-key-file", f.GroupKeyFile != "", true},
		{"-connect", f.Connect != "", false},
		{"-connect-file", f.File != "", false},
		{"-testhub", f.Testhub != "", false},
	}
	for _, flag := range flags {
		switch {
		case flag.set && flag.with && !registers:
			return usage(flag.name + ": it belongs to -id-scope and -registration-id; give these too, or leave it out")
		case flag.set && !flag.with && registers:
			return usage(flag.name + ": the device registers with the provisioning service; leave it out, or -id-scope and " +
				"-registration-id")
		}
	}
	switch {
	case f.Registering && f.Transport != "":
		return usage("-transport: devices register over HTTPS here; leave it out")
	case f.Registering && f.ModelID != "":
		return usage("-model-id: devices announce it to their hub; leave it out")
	}
	return nil
}

// reach checks for whom the addresses are. A command that does nothing but register connects to the
// provisioning service alone.
func (t *Target) reach(registers, alone bool) error {
	_, dps := t.addresses["dps"]
	switch {
	case dps && !registers:
		return usage("-address: dps=HOST:PORT belongs to -id-scope and -registration-id; give these too, or leave it out")
	case !alone:
		return nil
	}
	for name, address := range t.addresses {
		switch {
		case name != "" && name != "dps":
			return usage("-address: registering connects to the provisioning service alone; give HOST:PORT or dps=HOST:PORT")
		case name == "" && !dps:
			t.addresses["dps"] = address
		}
	}
	return nil
}

// registration fills in the identity of a registration.
func (f *Flags) registration(t *Target, w *World) error {
	id := &provisioning.Identity{
		Endpoint:       cmp.Or(f.DPS, w.Getenv(EnvDPS)),
		IDScope:        cmp.Or(f.IDScope, w.Getenv(EnvIDScope)),
		RegistrationID: cmp.Or(f.RegistrationID, w.Getenv(EnvRegistrationID)),
	}
	switch {
	case id.IDScope == "" && id.RegistrationID == "":
		return usage("nothing says who registers; give -id-scope and -registration-id, or set " + EnvIDScope + " and " +
			EnvRegistrationID)
	case id.IDScope == "":
		return usage("-id-scope: missing; it belongs to -registration-id, and the page of the service shows it")
	case id.RegistrationID == "":
		return usage("-registration-id: missing; it belongs to -id-scope, and is the device's id in most cases")
	}
	if t.Network.Certificate == nil {
		s, group, ok, err := f.key(w)
		if err == nil && !ok && w.Ask != nil {
			s, err = w.ask("key of the registration: ")
			ok = true
		}
		if err != nil {
			return err
		}
		if !ok {
			return usage("-registration-id: no proof of identity; give -key-file, -group-key-file or -cert, or set " +
				EnvKey + " or " + EnvGroupKey)
		}
		t.Key, t.group = s, group
		if group {
			id.Sign, err = provisioning.GroupKey(s.Text.Reveal(), id.RegistrationID)
		} else {
			id.Sign, err = transport.SharedKey(s.Text.Reveal())
		}
		if err != nil {
			return asUsage(s.From, err)
		}
	}
	t.Identity = id
	return asUsage("registration", id.Validate())
}

// Register asks the provisioning service for the hub, and fills in the credentials. A service that
// does not know the version of its API that tells the hub's profile is asked without.
func (t *Target) Register(ctx context.Context, o *provisioning.Options) (*provisioning.Assignment, error) {
	own := *o
	own.MQTTv5 = true
	assignment, err := t.register(ctx, &own)
	if refusal, ok := errors.AsType[*transport.StatusError](err); ok && refusal.Status == 400 && !t.mqttv5 {
		own.MQTTv5 = false
		assignment, err = t.register(ctx, &own)
	}
	if err != nil {
		return nil, err
	}
	t.mqttv5, t.issued = assignment.MQTTv5(), len(assignment.Chain) > 0
	if t.name != "" {
		_, err = t.find(t.name)
	}
	return assignment, err
}

// Registrar returns a client of the provisioning service.
func (t *Target) Registrar(o *provisioning.Options) (*provisioning.Client, error) {
	network := t.Network
	network.Addr = t.addresses["dps"]
	return provisioning.New(t.Identity, dpshttp.New(&network), o)
}

func (t *Target) register(ctx context.Context, o *provisioning.Options) (*provisioning.Assignment, error) {
	client, err := t.Registrar(o)
	if err != nil {
		return nil, err
	}
	assignment, err := client.Register(ctx)
	if err == nil {
		t.Creds = client.Credentials(assignment)
	}
	return assignment, err
}

// ConnectionString returns that of a device that has registered.
func (t *Target) ConnectionString() (transport.Secret, error) {
	proof := "x509=true"
	if t.Identity.Sign != nil && !t.issued {
		key := t.Key.Text.Reveal()
		if t.group {
			var err error
			if key, err = provisioning.DeriveKey(key, t.Identity.RegistrationID); err != nil {
				return nil, err
			}
		}
		proof = "SharedAccessKey=" + key
	}
	return transport.Hide("HostName=" + t.Creds.Host + ";DeviceId=" + t.Creds.DeviceID + ";" + proof), nil
}
