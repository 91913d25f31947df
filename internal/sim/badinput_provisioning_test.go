package sim_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// badIdentity is an identity with one wrong field.
type badIdentity struct {
	change func(id *provisioning.Identity, o *netopt.Options) error
	kind   transport.Kind
	names  string // what the error names
}

// badIdentities returns the wrong identities. The certificates are those of the device and of
// another one.
func badIdentities(own, other tls.Certificate) map[string]badIdentity {
	type Identity = provisioning.Identity
	certificate := func(cert tls.Certificate) func(id *Identity, o *netopt.Options) error {
		return func(id *Identity, o *netopt.Options) error {
			id.Sign = nil
			o.Certificate = func(context.Context) (*tls.Certificate, error) { return &cert, nil }
			return nil
		}
	}
	key := func(change func() (func(context.Context, []byte) ([]byte, error), error)) func(*Identity,
		*netopt.Options) error {
		return func(id *Identity, _ *netopt.Options) (err error) {
			id.Sign, err = change()
			return err
		}
	}
	keyless, swapped := own, own
	keyless.PrivateKey = nil
	swapped.PrivateKey = other.PrivateKey
	const notBase64 = "not base64"
	return map[string]badIdentity{
		"empty scope": {func(id *Identity, _ *netopt.Options) error { id.IDScope = ""; return nil }, invalid, "IDScope"},
		"scope with a slash": {func(id *Identity, _ *netopt.Options) error { id.IDScope = "0ne/x"; return nil }, invalid,
			"IDScope"},
		"empty registration id": {func(id *Identity, _ *netopt.Options) error { id.RegistrationID = ""; return nil }, invalid,
			"RegistrationID"},
		"registration id with a space": {func(id *Identity, _ *netopt.Options) error {
			id.RegistrationID = "reg 1"
			return nil
		}, invalid, "RegistrationID"},
		"registration id that ends in a dot": {func(id *Identity, _ *netopt.Options) error {
			id.RegistrationID = "reg."
			return nil
		}, invalid, "RegistrationID"},
		"key": {key(func() (func(context.Context, []byte) ([]byte, error), error) {
			return transport.SharedKey(notBase64)
		}), invalid, "shared access key"},
		"empty key": {key(func() (func(context.Context, []byte) ([]byte, error), error) {
			return transport.SharedKey("")
		}), invalid, "shared access key"},
		"group key": {key(func() (func(context.Context, []byte) ([]byte, error), error) {
			return provisioning.GroupKey(notBase64, movingID)
		}), invalid, "group key"},
		"neither key nor certificate": {func(id *Identity, _ *netopt.Options) error { id.Sign = nil; return nil }, invalid,
			"Certificate"},
		"chain without its key":        {certificate(keyless), invalid, "no private key"},
		"chain with the key of others": {certificate(swapped), invalid, "belongs to another certificate"},
		"empty chain":                  {certificate(tls.Certificate{PrivateKey: own.PrivateKey}), invalid, "certificate"},
		"clock unset": {func(id *Identity, _ *netopt.Options) error {
			id.Now = func() time.Time { return time.Unix(1000, 0) }
			return nil
		}, transport.ClockUnset, "clock"},
	}
}

// Over each carrier, an identity with a wrong field is refused before anything is sent. The error
// names the field. A device whose clock is not set waits for it.
func TestAWrongIdentityIsRefusedBeforeAnythingIsSent(t *testing.T) {
	ca := testbroker.NewCertAuthority("device maker")
	bad := badIdentities(ca.NewClientCert(movingID, time.Time{}, time.Time{}),
		ca.NewClientCert("another", time.Time{}, time.Time{}))
	for _, c := range carriers {
		for name, row := range bad {
			if row.kind == transport.ClockUnset && c.protocol == hubdata.HTTP {
				continue // the device learns the time from the service, without a token
			}
			t.Run(c.name+"/"+name, func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) {
					testkit.StartClock()
					d, err := testbroker.NewDPS(nil)
					require.NoError(t, err)
					e, err := d.Enroll(dpsdata.Enrollment{ID: movingID})
					require.NoError(t, err)
					sign, err := transport.SharedKey(e.PrimaryKey)
					require.NoError(t, err)
					id := &provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(), RegistrationID: movingID, Sign: sign}
					var dials atomic.Int32
					o := c.options(d, true)
					dial := o.Dial
					o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
						dials.Add(1)
						return dial(ctx, network, addr)
					}

					err = row.change(id, o)
					var failure error // of an attempt
					if err == nil {
						var client *provisioning.Client
						client, err = provisioning.New(id, c.make(o), &provisioning.Options{OnEvent: func(e provisioning.Event) {
							if failure == nil {
								failure = e.Err
							}
						}})
						if err == nil {
							ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
							_, err = client.Register(ctx)
							cancel()
						}
					}
					if row.kind == transport.ClockUnset { // it is awaited
						require.ErrorIs(t, err, transport.Cancelled)
						err = failure
					}
					require.ErrorIs(t, err, row.kind)
					require.ErrorContains(t, err, row.names)
					require.NotContains(t, err.Error(), e.PrimaryKey)
					require.Zero(t, dials.Load(), "connections")
					require.Empty(t, d.Requests())
					require.NoError(t, d.Close())
				})
			})
		}
	}
}
