package dpscert_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const day = 24 * time.Hour

// inWorld runs f in fake time. The clients that it leaves open are closed.
func inWorld(t *testing.T, o *testbroker.Options, f func(t *testing.T, w *world)) {
	testkit.In2030(t, func(t *testing.T) {
		w := newWorld(t, o)
		defer w.close()
		f(t, w)
	})
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// memory is a Store.
type memory struct {
	mu     sync.Mutex
	record *dpscert.Record
	saves  int
	busy   error // of the next Load
	broken error // of each Load
	err    error // of the next Save
}

func (m *memory) Load() (*dpscert.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.busy; err != nil {
		m.busy = nil
		return nil, err
	}
	return m.record, m.broken
}

func (m *memory) Save(r *dpscert.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saves++
	if err := m.err; err != nil {
		m.err = nil
		return err
	}
	m.record = r
	return nil
}

func (m *memory) saved() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.saves
}

// world is a hub, a provisioning service, and a device with a certificate for 30 days.
type world struct {
	t         *testing.T
	hub       *testbroker.Hub
	dps       *testbroker.DPS
	authority *testbroker.CertAuthority
	key       *ecdsa.PrivateKey
	store     *memory
	first     [][]byte
	creds     *transport.Credentials
	registrar *provisioning.Client
	renewAt   float64 // of the client
	clients   []*device.Client

	mu     sync.Mutex
	events []dpscert.Event
	states []device.Status
}

func newWorld(t *testing.T, o *testbroker.Options) *world {
	w := &world{t: t, key: newKey(t), store: &memory{}, authority: testbroker.NewCertAuthority("root")}
	var err error
	w.hub, err = testbroker.New(o)
	require.NoError(t, err)
	w.hub.CAPEM() // it is made on first use, and begins then
	w.dps, err = testbroker.NewDPS(nil)
	require.NoError(t, err)
	require.NoError(t, w.dps.Link(w.hub))
	w.first = w.issue("dev-1", w.key, 30*day)
	_, err = w.hub.AddDeviceX509("dev-1", thumbprint(w.first[0]))
	require.NoError(t, err)
	w.creds = &transport.Credentials{Host: w.hub.HostName(), DeviceID: "dev-1"}
	w.store.record = &dpscert.Record{Certificates: []dpscert.Issued{{Chain: w.first}}}
	return w
}

func (w *world) close() {
	for _, c := range w.clients {
		require.NoError(w.t, c.Close())
	}
	require.NoError(w.t, w.hub.Close())
	require.NoError(w.t, w.dps.Close())
}

// enroll lets the device register as reg-1, for certificates of 30 days.
func (w *world) enroll() {
	e, err := w.dps.Enroll(dpsdata.Enrollment{ID: "reg-1", DeviceID: "dev-1", Issue: w.authority.Issuer(30 * day)})
	require.NoError(w.t, err)
	sign, err := transport.SharedKey(e.PrimaryKey)
	require.NoError(w.t, err)
	w.registrar, err = provisioning.New(&provisioning.Identity{Endpoint: w.dps.HostName(), IDScope: w.dps.IDScope(),
		RegistrationID: "reg-1", Sign: sign}, dpshttp.New(&netopt.Options{Dial: w.dps.Dial(testbroker.PortHTTPS),
		TLS: w.dps.ClientTLS()}), nil)
	require.NoError(w.t, err)
}

func thumbprint(der []byte) string {
	digest := sha256.Sum256(der)
	return hex.EncodeToString(digest[:])
}

// issue returns a chain that the authority of the test signs.
func (w *world) issue(name string, key crypto.Signer, life time.Duration) [][]byte {
	der, err := dpscert.Request(name, key)
	require.NoError(w.t, err)
	csr, err := x509.ParseCertificateRequest(der)
	require.NoError(w.t, err)
	chain, err := w.authority.Issuer(life)(csr)
	require.NoError(w.t, err)
	return chain
}

// renewer returns a Renewer with the store of the world.
func (w *world) renewer(o dpscert.Options) *dpscert.Renewer {
	if o.Store == nil {
		o.Store = w.store
	}
	o.Registrar = w.registrar
	o.OnEvent = func(e dpscert.Event) {
		w.mu.Lock()
		w.events = append(w.events, e)
		w.mu.Unlock()
	}
	r, err := dpscert.New(w.key, &o)
	require.NoError(w.t, err)
	return r
}

// engines are the transports, each with the certificates of a Renewer.
func (w *world) transport(name string, r *dpscert.Renewer) transport.Transport {
	ports := map[string]testbroker.Port{"mqtt": testbroker.PortMQTTS, "mqtt5": testbroker.PortMQTTS,
		"amqp": testbroker.PortAMQPS, "http": testbroker.PortHTTPS}
	network := netopt.Options{Dial: w.hub.Dial(ports[name]), TLS: w.hub.ClientTLS(), Certificate: r.Certificate}
	switch name {
	case "mqtt":
		return mqtt.New(&mqtt.Options{Network: network, KeepAlive: 1170 * time.Second})
	case "mqtt5":
		return mqtt.New(&mqtt.Options{Network: network, KeepAlive: 1170 * time.Second, Dialect: &nexthub.Hub{}})
	case "amqp":
		return amqp.New(&amqp.Options{Network: network, IdleTimeout: 1170 * time.Second})
	default:
		return http.New(&http.Options{Network: network})
	}
}

// open connects a client over a transport.
func (w *world) open(name string, r *dpscert.Renewer) *device.Client {
	o := &device.Options{RenewAt: w.renewAt, OnStatus: func(s device.Status) {
		w.mu.Lock()
		w.states = append(w.states, s)
		w.mu.Unlock()
	}}
	c, err := device.New(w.creds, r.Around(w.transport(name, r)), o)
	require.NoError(w.t, err)
	require.NoError(w.t, c.Open(w.t.Context()))
	w.clients = append(w.clients, c)
	return c
}

// steps returns the steps of the events so far, and forgets them.
func (w *world) steps() (all []dpscert.Step) {
	for _, e := range w.told() {
		all = append(all, e.Step)
	}
	return all
}

func (w *world) told() []dpscert.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.events
	w.events = nil
	return all
}

func (w *world) statuses() []device.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]device.Status(nil), w.states...)
}

// leaf returns the certificate in use.
func (w *world) leaf(r *dpscert.Renewer) *x509.Certificate {
	cert, err := r.Certificate(w.t.Context())
	require.NoError(w.t, err)
	return cert.Leaf
}

// keys is a key store: the names of its keys are numbers.
type keys struct {
	t    *testing.T
	mu   sync.Mutex // guards the fields below
	all  []crypto.Signer
	fail error
}

func (k *keys) make(context.Context) (crypto.Signer, string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != nil {
		return nil, "", k.fail
	}
	k.all = append(k.all, newKey(k.t))
	return k.all[len(k.all)-1], fmt.Sprint(len(k.all)), nil
}

func (k *keys) open(_ context.Context, name string) (crypto.Signer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var n int
	if _, err := fmt.Sscan(name, &n); err != nil || n < 1 || n > len(k.all) {
		return nil, fmt.Errorf("no key %q", name)
	}
	return k.all[n-1], nil
}

func (k *keys) made() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.all)
}

func public(c *tls.Certificate) crypto.PublicKey { return c.PrivateKey.(crypto.Signer).Public() }
