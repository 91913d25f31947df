package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/mqtt/lean/leannet"
)

// childEnv names the measurement that a child process is for.
const childEnv = "HUBLINE_BENCH_CHILD"

// children are the measurements that need a process of their own. Each reads its settings from in and returns its report; ready is called when the
// parent's part begins.
var children = map[string]func(in *json.Decoder, ready func()) (any, error){
	"idle":   idleChild,
	"outage": outageChild,
}

// Child does a measurement and exits, if this process was started for that; else it does nothing. What measures in a child process calls it before all else.
func Child() {
	f, ok := children[os.Getenv(childEnv)]
	if !ok {
		return
	}
	out := json.NewEncoder(os.Stdout)
	report, err := f(json.NewDecoder(os.Stdin), func() { _ = out.Encode("ready") })
	if err == nil {
		err = out.Encode(report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// inChild runs a measurement in another process of the same program. ready is called when the child says so.
func inChild(ctx context.Context, name string, settings, report any, ready func()) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	in, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	cmd.Stdin = bytes.NewReader(in)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := json.NewDecoder(out)
	var word string
	err = lines.Decode(&word)
	if err == nil {
		if ready != nil {
			ready()
		}
		err = lines.Decode(report)
	}
	_, _ = io.Copy(io.Discard, out)
	if waitErr := cmd.Wait(); waitErr != nil {
		return fmt.Errorf("child process: %w: %s", waitErr, complaint.Bytes())
	}
	return err
}

// access is what a child needs to reach its parent's hub.
type access struct {
	Addr, Host string
	Devices    []identity
	CA         []byte // of a hub with TLS
}

type identity struct{ ID, Key string }

// transport makes one transport, which all clients of the process share.
func (a *access) transport() *mqtt.Transport {
	o := &mqtt.Options{Addr: a.Addr, Plaintext: a.CA == nil}
	if a.CA != nil {
		o.TLS = &tls.Config{RootCAs: a.roots()}
	}
	return mqtt.New(o)
}

// lean makes transports on the MQTT engine of our own, which needs one for each client. They share the settings of TLS.
func (a *access) lean() func(*transport.Credentials) transport.Transport {
	o := &leannet.Options{Addr: a.Addr, Plaintext: a.CA == nil}
	if a.CA != nil {
		o.TLS = &tls.Config{RootCAs: a.roots()}
	}
	return func(creds *transport.Credentials) transport.Transport { return lean.New(leannet.Dialer(creds, o), nil) }
}

func (a *access) roots() *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.CA)
	return roots
}

func (a *access) creds(i int) (*transport.Credentials, error) {
	sign, err := transport.SharedKey(a.Devices[i].Key)
	if err != nil {
		return nil, err
	}
	return &transport.Credentials{Host: a.Host, DeviceID: a.Devices[i].ID, Sign: sign, TokenLife: 24 * time.Hour}, nil
}
