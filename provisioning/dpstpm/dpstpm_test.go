//go:build unix

package dpstpm_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsamqp"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/provisioning/dpstpm"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// services starts a provisioning service and its hub.
func services(t testing.TB) (*testbroker.DPS, *testbroker.Hub) {
	d, err := testbroker.NewDPS(&testbroker.DPSOptions{Polls: -1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	h, err := testbroker.New(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	require.NoError(t, d.Link(h))
	return d, h
}

// registrar enrolls the TPM and returns its client.
func registrar(t testing.TB, d *testbroker.DPS, tpm *dpstpm.TPM) (*provisioning.Client, dpsdata.Enrollment) {
	e, err := d.Enroll(dpsdata.Enrollment{ID: tpm.RegistrationID(), EndorsementKey: tpm.EndorsementKey()})
	require.NoError(t, err)
	id := &provisioning.Identity{
		Endpoint: d.HostName(), IDScope: d.IDScope(), RegistrationID: tpm.RegistrationID(), TPM: tpm,
	}
	c, err := provisioning.New(id,
		dpshttp.New(&netopt.Options{Dial: d.Dial(testbroker.PortHTTPS), TLS: d.ClientTLS()}), nil)
	require.NoError(t, err)
	return c, e
}

// send opens a client at the hub and sends a message.
func send(t testing.TB, h *testbroker.Hub, creds *transport.Credentials) {
	network := netopt.Options{Dial: h.Dial(testbroker.PortMQTTS), TLS: h.ClientTLS()}
	c, err := device.New(creds, mqtt.New(&mqtt.Options{Network: network}), nil)
	require.NoError(t, err)
	require.NoError(t, c.Open(t.Context()))
	require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("21.5")}))
	require.NoError(t, c.Close())
}

// A carrier over AMQP gets the challenge while it logs in.
func TestRegistrationsOverEachProtocol(t *testing.T) {
	d, h := services(t)
	tpm, err := dpstpm.New(swtpm(t, t.TempDir()), nil)
	require.NoError(t, err)
	_, e := registrar(t, d, tpm)
	id := &provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(), RegistrationID: e.ID, TPM: tpm}
	network := func(p testbroker.Port) *netopt.Options {
		return &netopt.Options{Dial: d.Dial(p), TLS: d.ClientTLS()}
	}
	overWebSocket := network(testbroker.PortHTTPS)
	overWebSocket.Tunnel = websocket.AMQP(nil)
	for name, carrier := range map[string]provisioning.Carrier{
		"HTTPS":              dpshttp.New(network(testbroker.PortHTTPS)),
		"AMQP":               dpsamqp.New(network(testbroker.PortAMQPS)),
		"AMQP and WebSocket": dpsamqp.New(overWebSocket),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := provisioning.New(id, carrier, nil)
			require.NoError(t, err)
			a, err := c.Register(t.Context())
			require.NoError(t, err)
			send(t, h, c.Credentials(a))
			d.Inject(fault.Fault{Kind: fault.WrongChallenge})
			_, err = c.Register(t.Context())
			require.ErrorIs(t, err, transport.Unauthorized)
			require.ErrorContains(t, err, "activate the credential")
			send(t, h, c.Credentials(a)) // a refused key leaves the one before in place
		})
	}
	for name, carrier := range map[string]provisioning.Carrier{
		"dpsmqtt": dpsmqtt.New(network(testbroker.PortMQTTS)),
	} {
		_, err := provisioning.New(id, carrier, nil)
		require.ErrorIs(t, err, transport.Invalid, name)
		require.ErrorContains(t, err, "TPM is set", name)
	}
}

// macOf is what the TPM must sign with the key of the enrollment.
func macOf(t testing.TB, e dpsdata.Enrollment, text []byte) []byte {
	key, err := base64.StdEncoding.DecodeString(e.PrimaryKey)
	require.NoError(t, err)
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return mac.Sum(nil)
}

// A device registers, sends, and sends again after a restart of its TPM. The keys are the same
// then.
func TestADeviceWithATPMSends(t *testing.T) {
	d, h := services(t)
	dir := t.TempDir()
	first := swtpm(t, dir)
	tpm, err := dpstpm.New(first, nil)
	require.NoError(t, err)
	c, e := registrar(t, d, tpm)
	a, err := c.Register(t.Context())
	require.NoError(t, err)
	require.Equal(t, h.HostName(), a.Hub)
	creds := c.Credentials(a)
	send(t, h, creds)
	require.Len(t, h.Messages(), 1)

	for _, size := range []int{0, 1, 1024, 1025, 2048, 5000} {
		text := bytes.Repeat([]byte("t"), size)
		mac, err := tpm.Sign(t.Context(), text)
		require.NoError(t, err)
		require.Equal(t, macOf(t, e, text), mac, size)
	}
	require.NoError(t, first.Close())

	again, err := dpstpm.New(swtpm(t, dir), nil)
	require.NoError(t, err)
	require.Equal(t, tpm.EndorsementKey(), again.EndorsementKey())
	creds.Sign = again.Sign
	send(t, h, creds)
	require.Len(t, h.Messages(), 2)

	// another key replaces the first one
	require.NoError(t, d.Change(e.ID, func(e *dpsdata.Enrollment) { e.PrimaryKey = e.SecondaryKey }))
	renewed, err := d.Enrollment(e.ID)
	require.NoError(t, err)
	id := &provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(), RegistrationID: e.ID, TPM: again}
	c, err = provisioning.New(id,
		dpshttp.New(&netopt.Options{Dial: d.Dial(testbroker.PortHTTPS), TLS: d.ClientTLS()}), nil)
	require.NoError(t, err)
	for range 5 { // a TPM has room for three transient objects
		_, err = c.Register(t.Context())
		require.NoError(t, err)
	}
	mac, err := again.Sign(t.Context(), []byte("text"))
	require.NoError(t, err)
	require.Equal(t, macOf(t, renewed, []byte("text")), mac)
	require.NotEqual(t, macOf(t, e, []byte("text")), mac)
}

func TestKeysThatATPMDoesNotTake(t *testing.T) {
	d, _ := services(t)
	tpm, err := dpstpm.New(swtpm(t, t.TempDir()), nil)
	require.NoError(t, err)
	_, err = tpm.Sign(t.Context(), []byte("text"))
	require.ErrorIs(t, err, transport.Unauthorized, "no key yet")
	require.ErrorContains(t, err, "identity key")
	c, _ := registrar(t, d, tpm)
	d.Inject(fault.Fault{Kind: fault.WrongChallenge})
	_, err = c.Register(t.Context())
	require.ErrorIs(t, err, transport.Unauthorized)
	require.ErrorContains(t, err, "activate the credential")
	code, ok := errors.AsType[tpm2.TPMRC](err)
	require.True(t, ok, "%v", err)
	require.False(t, code.IsWarning())
	for _, key := range []string{"", "\x00", "\x00\x05x", "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00x"} {
		require.ErrorIs(t, tpm.Activate(t.Context(), []byte(key)), transport.Protocol, "%q", key)
	}
	require.Error(t, tpm.Activate(t.Context(), make([]byte, 10)))
	_, err = c.Register(t.Context())
	require.NoError(t, err, "the TPM has room afterwards")
}

// Steps from several goroutines follow each other. An ended context ends the wait for a turn.
func TestATPMIsSafeForConcurrentUse(t *testing.T) {
	d, _ := services(t)
	tpm, err := dpstpm.New(swtpm(t, t.TempDir()), nil)
	require.NoError(t, err)
	c, e := registrar(t, d, tpm)
	_, err = c.Register(t.Context())
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				mac, err := tpm.Sign(t.Context(), []byte("text"))
				if err != nil || !bytes.Equal(mac, macOf(t, e, []byte("text"))) {
					t.Error("wrong signature: ", err)
				}
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = tpm.Sign(ctx, []byte("text"))
	require.ErrorIs(t, err, context.Canceled)
}

// A TPM that somebody has set up has authorization values.
func TestAuthorizationValues(t *testing.T) {
	device := swtpm(t, t.TempDir())
	for _, hierarchy := range []tpm2.TPMHandle{tpm2.TPMRHOwner, tpm2.TPMRHEndorsement} {
		_, err := tpm2.HierarchyChangeAuth{
			AuthHandle: tpm2.AuthHandle{Handle: hierarchy, Auth: tpm2.PasswordAuth(nil)},
			NewAuth:    tpm2.TPM2BAuth{Buffer: []byte{byte(hierarchy)}},
		}.Execute(device)
		require.NoError(t, err)
	}
	_, err := dpstpm.New(device, nil)
	require.ErrorIs(t, err, transport.Unauthorized)
	require.ErrorContains(t, err, "make the endorsement key")
	owner, endorsement := tpm2.TPMRHOwner, tpm2.TPMRHEndorsement
	tpm, err := dpstpm.New(device, &dpstpm.Options{
		OwnerAuth: []byte{byte(owner)}, EndorsementAuth: []byte{byte(endorsement)},
	})
	require.NoError(t, err)
	d, _ := services(t)
	c, _ := registrar(t, d, tpm)
	_, err = c.Register(t.Context())
	require.NoError(t, err)
}

// brokenDevice is a TPM that does not answer.
type brokenDevice struct{}

func (brokenDevice) Send([]byte) ([]byte, error) { return nil, errors.New("input/output error") }

func TestABrokenDeviceIsRetried(t *testing.T) {
	_, err := dpstpm.New(brokenDevice{}, nil)
	require.ErrorIs(t, err, transport.Unavailable)
	require.ErrorContains(t, err, "read the endorsement key")
}
