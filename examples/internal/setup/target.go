package setup

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/hubline-iot/hubline/transport/netopt"
)

// Target is the hub of an example.
type Target struct {
	// Connect is the connection string of a device; empty: an in-process hub.
	Connect string
	// Testhub is the control API of the program testhub, such as "http://127.0.0.1:39111", which knows
	// ports and certificate. Empty: the connection string names the hub, and the system must trust its
	// certificate.
	Testhub string
}

// Flags registers -connect and -hub.
func (t *Target) Flags() {
	flag.StringVar(&t.Connect, "connect", "", "connection string of a device; empty: $HUBLINE_CONNECTION_STRING, and if "+
		"that is empty, an in-process hub")
	flag.StringVar(&t.Testhub, "hub", "", "`address` of a testhub's control API, if the connection string is from "+
		"there; empty: the hub is where the connection string says")
}

// complete reads the environment, and returns an error if something is missing.
func (t *Target) complete() error {
	if t.Connect == "" { // not the flag's default: -h would print the key
		t.Connect = os.Getenv("HUBLINE_CONNECTION_STRING")
	}
	if t.Testhub != "" && t.Connect == "" {
		return Usage("flag -hub: whose device it is does not follow from the address; give -connect or " +
			"HUBLINE_CONNECTION_STRING as well, which testhub prints")
	}
	return nil
}

// askTime is the time limit for testhub's answer.
const askTime = 10 * time.Second

// Find returns the address of the hub's port for mqtt, amqp or https. Without a testhub it returns
// the zero value: the address in the credentials, with a certificate that the system trusts.
func (t *Target) Find(ctx context.Context, port string) (netopt.Options, error) {
	if t.Testhub == "" {
		return netopt.Options{}, nil
	}
	_, at, err := t.ask(ctx, "/hub", port)
	return at, err
}

// Service returns the name of testhub's provisioning service and its network settings over MQTT.
// Both are empty without a testhub: those of the public service.
func (t *Target) Service(ctx context.Context) (host string, at netopt.Options, err error) {
	if t.Testhub == "" {
		return "", netopt.Options{}, nil
	}
	return t.ask(ctx, "/dps", "mqtt")
}

// ask requests the address from testhub, and what to trust there. Its file of the certificate may
// be another testhub's by now, or in a container.
func (t *Target) ask(ctx context.Context, path, port string) (host string, at netopt.Options, err error) {
	fix := "give the address that testhub prints as page"
	defer func() {
		if err != nil {
			err = fmt.Errorf("flag -hub: %w; %s", err, fix)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var hub struct {
		Host      string            `json:"host"`
		Addresses map[string]string `json:"addresses"`
	}
	var ca struct {
		PEM string `json:"pem"`
	}
	if err := cmp.Or(t.get(ctx, path, &hub), t.get(ctx, "/certificate", &ca)); err != nil {
		return "", netopt.Options{}, err
	}
	addr, ok := hub.Addresses[port]
	if !ok {
		fix = "start testhub with one"
		return "", netopt.Options{}, fmt.Errorf("the hub at %s has no port for %s", t.Testhub, port)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(ca.PEM)) {
		return "", netopt.Options{}, fmt.Errorf("%s has no certificate", t.Testhub)
	}
	return hub.Host, netopt.Options{Addr: addr, TLS: &tls.Config{RootCAs: roots}}, nil
}

// get reads an answer of testhub into v.
func (t *Target) get(ctx context.Context, path string, v any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.Testhub+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(v); err != nil {
		return fmt.Errorf("%s does not answer as testhub does: %w", t.Testhub, err)
	}
	return nil
}
