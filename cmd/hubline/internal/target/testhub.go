package target

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Variables that testhub -env writes: the address of its control API, and the API's token if it has
// one.
const (
	EnvHub      = "HUB"
	EnvHubToken = "HUB_TOKEN"
)

// deskTime bounds a request to the control API, which is on this machine as a rule.
const deskTime = 5 * time.Second

// desk is the control API of a testhub.
type desk struct{ at, token string }

func newDesk(getenv func(string) string) (*desk, error) {
	at := strings.TrimRight(getenv(EnvHub), "/")
	if u, err := url.Parse(at); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usage("-testhub: the variable " + EnvHub + " has no address of a control API; write export " + EnvHub +
			"=http://127.0.0.1:PORT, the page that testhub prints, or read the file of testhub -env")
	}
	return &desk{at, getenv(EnvHubToken)}, nil
}

// get asks for a document. The error does not tell the token, nor what the answer has.
func (d *desk) get(path string, within time.Duration, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.at+path, nil)
	if err != nil {
		return usage("-testhub: " + err.Error())
	}
	if d.token != "" {
		request.Header.Set("Authorization", "Bearer "+d.token)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // without the address, which is here already
		}
		return usage("-testhub: no testhub answers at " + d.at + " (" + EnvHub + "): " + err.Error())
	}
	defer answer.Body.Close()
	const limit = 16 << 20
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return errNotThere
	default:
		return usage("-testhub: the control API at " + d.at + " answers " + answer.Status + "; a token belongs into the " +
			"variable " + EnvHubToken)
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, limit)).Decode(into); err != nil {
		return usage("-testhub: " + d.at + " (" + EnvHub + ") is no testhub: " + err.Error())
	}
	return nil
}

// errNotThere is the answer 404.
var errNotThere = usage("-testhub: the control API does not know the request; is the testhub of this version?")

// devices returns the ids of all devices and modules.
func (d *desk) devices(within time.Duration) (ids []string, err error) {
	var all struct {
		Devices []struct {
			Device string `json:"device"`
		} `json:"devices"`
	}
	err = d.get("/devices", within, &all)
	for _, one := range all.Devices {
		ids = append(ids, one.Device)
	}
	return ids, err
}

// TesthubDevices returns the devices of the testhub at HUB, for completion: none if there is no
// answer at once.
func TesthubDevices(getenv func(string) string) []string {
	d, err := newDesk(getenv)
	if err != nil {
		return nil
	}
	ids, _ := d.devices(time.Second)
	return ids
}

// TesthubRootKeys returns the package of root keys of the update service of the testhub at HUB.
func TesthubRootKeys(getenv func(string) string) ([]byte, error) {
	d, err := newDesk(getenv)
	if err != nil {
		return nil, err
	}
	var text json.RawMessage
	if err := d.get("/updates/rootkeys", deskTime, &text); errors.Is(err, errNotThere) {
		return nil, usage("-testhub: it has no update service; start testhub with -updates DIR")
	} else if err != nil {
		return nil, err
	}
	return text, nil
}

// testhub fills in a device of a testhub: who it is, where the hub listens and what to trust. Flags
// that say these things go before.
func (f *Flags) testhub(t *Target, w *World) (Secret, error) {
	if f.Connect != "" || f.File != "" {
		return Secret{}, usage("-testhub: it names the device; leave out -connect and -connect-file")
	}
	d, err := newDesk(w.Getenv)
	if err != nil {
		return Secret{}, err
	}
	var access struct {
		ConnectionString string `json:"connectionString"`
		BrokerURL        string `json:"brokerURL"`
		Certificate      string `json:"certificate"` // a file, or its content
	}
	if err := d.get("/devices/"+url.PathEscape(f.Testhub)+"/access", deskTime, &access); err != nil {
		return Secret{}, d.unknown(f.Testhub, err)
	}
	var hub struct {
		Profile   string            `json:"profile"`
		Addresses map[string]string `json:"addresses"`
	}
	var ca struct {
		PEM string `json:"pem"`
	}
	if err := d.get("/hub", deskTime, &hub); err != nil {
		return Secret{}, err
	}
	if err := d.get("/certificate", deskTime, &ca); err != nil {
		return Secret{}, err
	}
	t.mqttv5 = t.mqttv5 || hub.Profile != ""
	t.listens(hub.Addresses)
	if t.Network.TLS == nil {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(ca.PEM))
		t.Network.TLS = &tls.Config{RootCAs: roots}
	}
	if access.Certificate != "" && t.Network.Certificate == nil {
		if err := t.present(access.Certificate); err != nil {
			return Secret{}, err
		}
	}
	secret := access.ConnectionString
	if access.BrokerURL != "" {
		secret = access.BrokerURL
	}
	return Secret{transport.Hide(secret), "-testhub"}, nil
}

// unknown explains an answer about a device that is not there.
func (d *desk) unknown(id string, err error) error {
	if !errors.Is(err, errNotThere) {
		return err
	}
	ids, err := d.devices(deskTime)
	if err != nil || slices.Contains(ids, id) {
		return errNotThere
	}
	if how := d.enrolled(id); how != "" {
		return usage("-testhub: " + strconv.Quote(id) + " registers with the provisioning service; read the file of " +
			"testhub -env, and give " + how)
	}
	return usage("-testhub: there is no device " + strconv.Quote(id) + "; there are " + strings.Join(ids, ", "))
}

// enrolled returns the flags for a device that has an enrollment of its own; empty if it has none.
func (d *desk) enrolled(id string) string {
	var all struct {
		Enrollments []struct {
			Enrollment string `json:"enrollment"`
			Group      bool   `json:"group"`
		} `json:"enrollments"`
	}
	var dps struct {
		IDScope   string            `json:"idScope"`
		CA        string            `json:"ca"`
		Addresses map[string]string `json:"addresses"`
	}
	if d.get("/dps/enrollments", deskTime, &all) != nil || d.get("/dps", deskTime, &dps) != nil {
		return ""
	}
	for _, e := range all.Enrollments {
		if e.Enrollment == id && !e.Group {
			return "-id-scope " + dps.IDScope + " -registration-id " + id + " -address dps=" + dps.Addresses["https"] +
				" -ca " + dps.CA
		}
	}
	return ""
}

// listens takes the addresses of a testhub for the transports whose address no flag gives.
func (t *Target) listens(at map[string]string) {
	if _, given := t.addresses[""]; given {
		return
	}
	for _, p := range Transports {
		port := "mqtt"
		switch {
		case p.Name == "http" || strings.HasSuffix(p.Name, "-ws"):
			port = "https"
		case p.Name == "amqp":
			port = "amqp"
		}
		if _, given := t.addresses[p.Name]; !given && at[port] != "" {
			t.addresses[p.Name] = at[port]
		}
	}
}

// present takes the certificate that a testhub made for the device.
func (t *Target) present(given string) error {
	pem := []byte(given)
	if !strings.HasPrefix(given, "-----BEGIN ") {
		file, err := readFile("-testhub", given)
		if err != nil {
			return err
		}
		pem = []byte(file.Text.Reveal())
	}
	pair, err := tls.X509KeyPair(pem, pem)
	if err != nil {
		return usage("-testhub: the device's certificate: " + err.Error())
	}
	t.Network.Certificate = func(context.Context) (*tls.Certificate, error) { return &pair, nil }
	return nil
}
