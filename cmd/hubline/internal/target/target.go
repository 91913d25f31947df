package target

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/netproxy/envproxy"
)

// Target is a device and its service.
type Target struct {
	// Creds are nil for a registration until Register.
	Creds *transport.Credentials
	// URL is that of a broker. Nil: the service is a hub.
	URL transport.Secret
	// Identity is that of a registration. Nil: there is none.
	Identity *provisioning.Identity
	// Key is what proves the identity, as given: the connection string, the URL or the key.
	Key Secret
	// Network has what all transports share.
	Network netopt.Options

	name      string            // of the transport
	mqttv5    bool              // the hub has the connection profile mqttV5
	model     string            // of Plug and Play; empty: none
	group     bool              // Key is that of the registration's group
	issued    bool              // the registration got a certificate
	addresses map[string]string // by transport; "" is for all
	scheme    string            // of URL
	preset    *Preset           // of -dialect; nil: none
	alpn      string            // offered in TLS; empty: nothing
}

// Resolve returns the target that flags, environment and prompt name.
func (f *Flags) Resolve(w *World) (*Target, error) {
	t := &Target{name: f.Transport, mqttv5: forMQTTv5(f.Transport), model: f.ModelID}
	registers := f.registers(w)
	err := f.misplaced(registers)
	if err != nil {
		return nil, err
	}
	if t.addresses, err = parseAddresses(f.Addresses); err != nil {
		return nil, err
	}
	if err := t.reach(registers, f.Registering); err != nil {
		return nil, err
	}
	if t.preset, err = findPreset(f.Dialect); err != nil {
		return nil, err
	}
	if err := f.network(&t.Network); err != nil {
		return nil, err
	}
	if registers {
		err = f.registration(t, w)
	} else {
		err = f.device(t, w)
	}
	if err != nil {
		return nil, err
	}
	if t.preset != nil && !isMQTT(t.scheme) {
		return nil, usage("-dialect: it is for brokers with MQTT; give the broker's URL, such as mqtts://...")
	}
	if err := t.negotiation(f); err != nil {
		return nil, err
	}
	if err := t.modeled(); err != nil {
		return nil, err
	}
	if t.name != "" {
		if _, err := t.find(t.name); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// modeled checks the model id and its place in the login.
func (t *Target) modeled() error {
	switch {
	case t.model == "":
		return nil
	case !strings.HasPrefix(t.model, "dtmi:"):
		return usage("-model-id: it does not begin with dtmi:; give one such as dtmi:com:example:Thermostat;1")
	case t.URL != nil || t.name == "http" || t.mqttv5:
		return usage("-model-id: a login to a hub over MQTT or AMQP has a place for it, and no other one; leave it out")
	}
	return nil
}

// device fills in a hub's device or a broker's.
func (f *Flags) device(t *Target, w *World) error {
	s, err := f.secret(t, w)
	if err != nil {
		return err
	}
	t.Key = s
	if scheme, _, isURL := strings.Cut(strings.Trim(s.Text.Reveal(), "\"' \t\r\n"), "://"); isURL && mayBeScheme(scheme) {
		t.URL, t.scheme = s.Text, strings.ToLower(scheme)
		t.Creds, err = t.parseURL()
	} else {
		t.Creds, err = device.ParseConnectionString(s.Text.Reveal())
	}
	return asUsage(s.From, err)
}

// secret returns the connection string or the URL of the device.
func (f *Flags) secret(t *Target, w *World) (Secret, error) {
	if f.Testhub != "" {
		return f.testhub(t, w)
	}
	s, ok, err := f.connection(w)
	switch {
	case ok || err != nil:
		return s, err
	case w.Ask != nil:
		return w.ask("connection string or broker URL: ")
	}
	return s, usage("which device: give -connect-file FILE, or set " + EnvConnect + " or " + EnvBroker +
		", or -id-scope and -registration-id for a device that registers; see hubline help credentials")
}

// network fills in roots, certificate and proxy.
func (f *Flags) network(n *netopt.Options) error {
	if !f.NoProxy {
		n.Proxy = envproxy.Find
	}
	if f.CA != "" {
		pem, err := readFile("-ca", f.CA)
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(pem.Text.Reveal())) {
			return usage("-ca: " + f.CA + " has no certificate in PEM; give a file that begins with -----BEGIN CERTIFICATE-----")
		}
		n.TLS = &tls.Config{RootCAs: roots}
	}
	if (f.Cert == "") != (f.CertKey == "") {
		return usage("-cert and -cert-key: give both; one file may have certificate and key")
	}
	if f.Cert != "" {
		n.Certificate = netopt.CertificateFiles(f.Cert, f.CertKey)
		if _, err := n.Certificate(context.Background()); err != nil {
			return asUsage("-cert and -cert-key", err)
		}
	}
	return nil
}

// asUsage makes an error about the input from one of the SDK, whose texts have no secret.
func asUsage(from string, err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if e := transport.Find(err); e != nil && e.Err != nil {
		text = e.Err.Error()
	}
	return usage(from + ": " + text)
}

func parseAddresses(given []string) (map[string]string, error) {
	all := map[string]string{}
	for _, text := range given {
		name, address, named := strings.Cut(text, "=")
		if !named {
			name, address = "", text
		}
		if i := strings.LastIndexByte(address, ':'); i <= 0 || i == len(address)-1 {
			return nil, usage("-address: " + strconv.Quote(text) + " is no address; give HOST:PORT or NAME=HOST:PORT")
		}
		if name != "" && name != "dps" && !known(name) {
			return nil, usage("-address: there is no transport " + name + "; give one of " + strings.Join(Names(), ", ") +
				", dps")
		}
		all[name] = address
	}
	return all, nil
}

// Terminal returns a World with the process's environment. prompt is nil unless somebody can
// answer.
func Terminal(out io.Writer, readPassword func() ([]byte, error)) *World {
	w := &World{Getenv: os.Getenv, Note: func(line string) { _, _ = io.WriteString(out, line+"\n") }}
	if readPassword != nil {
		w.Ask = func(prompt string) (string, error) {
			if _, err := io.WriteString(out, prompt); err != nil {
				return "", err
			}
			text, err := readPassword()
			_, _ = io.WriteString(out, "\n")
			return string(text), err
		}
	}
	return w
}
