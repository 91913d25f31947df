package doctor

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// examineRegistration is examine for the device pump-2, which has an enrollment.
func examineRegistration(t *testing.T, f func(p *patient, dps *testbroker.DPS)) {
	t.Helper()
	examine(t, &testbroker.Options{Seed: 1}, func(p *patient) {
		dps, err := testbroker.NewDPS(&testbroker.DPSOptions{Seed: 1})
		require.NoError(p.t, err)
		defer func() { require.NoError(p.t, dps.Close()) }()
		require.NoError(p.t, dps.Link(p.hub))
		enrollment, err := dps.Enroll(dpsdata.Enrollment{ID: "pump-2"})
		require.NoError(p.t, err)
		toHub, toDPS := p.dial, hubfixture.AtPorts(dps)
		p.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if strings.HasPrefix(address, dps.HostName()) {
				return toDPS(ctx, network, address)
			}
			return toHub(ctx, network, address)
		}
		p.use(target.Flags{IDScope: dps.IDScope(), RegistrationID: "pump-2", DPS: dps.HostName()},
			map[string]string{target.EnvKey: enrollment.PrimaryKey})
		f(p, dps)
	})
}

func TestARegistrationIsExaminedWithItsHub(t *testing.T) {
	examineRegistration(t, func(p *patient, _ *testbroker.DPS) {
		rows := p.run()
		require.Empty(p.t, marks(rows, Bad), "%+v", rows)
		require.Empty(p.t, marks(rows, Skipped))
		require.Contains(p.t, rows["registration"].Figure, "pump-2 at "+p.hub.HostName())
		require.Equal(p.t, OK, rows["tls provisioning"].Mark)
		require.Equal(p.t, OK, rows["message mqtt"].Mark)
	})
}

// The row about updates is there for a device that says which are for it.
func TestUpdatesOfARegistration(t *testing.T) {
	examineRegistration(t, func(p *patient, dps *testbroker.DPS) {
		row := func() Row {
			p.probe.rows = nil
			return p.run()["updates"]
		}
		require.Zero(p.t, row())
		p.probe.Options.UpdateProperties = agent.Properties{{Name: "model", Value: "Toaster"}}
		require.Equal(p.t, "no update is offered", row().Figure, "the service has no account for updates")
		updates, err := testbroker.NewUpdates(nil)
		require.NoError(p.t, err)
		dps.LinkUpdates(updates)
		dps.Inject(fault.Fault{Kind: fault.RefuseProvisioning, Route: fault.RouteUpdateCheck, Text: "DEVICE_UNAUTHORIZED"})
		require.Equal(p.t, Bad, row().Mark)
		require.Equal(p.t, OK, row().Mark)
	})
}

// A provisioning service of the hub's name is another service, with an authority of its own.
func TestAProvisioningServiceOfTheHubsName(t *testing.T) {
	examine(t, nil, func(p *patient) {
		dps, err := testbroker.NewDPS(&testbroker.DPSOptions{HostName: p.hub.HostName()})
		require.NoError(p.t, err)
		defer func() { require.NoError(p.t, dps.Close()) }()
		require.NoError(p.t, dps.Link(p.hub))
		enrollment, err := dps.Enroll(dpsdata.Enrollment{ID: "pump-2"})
		require.NoError(p.t, err)
		ca := filepath.Join(p.t.TempDir(), "ca.pem")
		require.NoError(p.t, os.WriteFile(ca, append(p.hub.CAPEM(), dps.CAPEM()...), 0o600))
		toHub, toDPS := p.dial, hubfixture.AtPorts(dps)
		p.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "dps.example:443" {
				return toDPS(ctx, network, address)
			}
			return toHub(ctx, network, address)
		}
		p.use(target.Flags{IDScope: dps.IDScope(), RegistrationID: "pump-2", DPS: dps.HostName(), CA: ca,
			Addresses: []string{"dps=dps.example:443"}}, map[string]string{target.EnvKey: enrollment.PrimaryKey})
		rows := p.run()
		require.Equal(p.t, OK, rows["tls provisioning"].Mark, "%+v", rows)
		require.Equal(p.t, OK, rows["tls 443"].Mark, "%+v", rows)
	})
}

// Without a hub nothing behind the registration is green.
func TestARefusedRegistration(t *testing.T) {
	for name, c := range map[string]struct {
		row   string
		kind  transport.Kind
		spoil func(p *patient, dps *testbroker.DPS)
	}{
		"not enrolled": {"registration", transport.NotFound, func(p *patient, dps *testbroker.DPS) {
			require.NoError(p.t, dps.Delete("pump-2"))
		}},
		"another key": {"registration", transport.Unauthorized, func(p *patient, dps *testbroker.DPS) {
			require.NoError(p.t, dps.Change("pump-2", func(e *dpsdata.Enrollment) {
				e.PrimaryKey, e.SecondaryKey = otherKey, otherKey
			}))
		}},
		"portal": {"tls provisioning", transport.Untrusted, func(p *patient, dps *testbroker.DPS) {
			require.NoError(p.t, dps.PresentName("portal.example"))
		}},
		"no handshake": {"tls provisioning", transport.Timeout, func(_ *patient, dps *testbroker.DPS) {
			dps.Inject(fault.Fault{Kind: fault.MuteHandshake, Times: -1})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			examineRegistration(t, func(p *patient, dps *testbroker.DPS) {
				c.spoil(p, dps)
				rows := p.run()
				require.Equal(p.t, []string{c.row}, marks(rows, Bad), "%+v", rows)
				require.Equal(p.t, c.kind, rows[c.row].Kind, "%+v", rows[c.row])
				require.Equal(p.t, Skipped, rows["name"].Mark)
				require.Equal(p.t, Skipped, rows["connect mqtt"].Mark)
			})
		})
	}
}

// The provisioning service takes a certificate for its own registration id alone.
func TestARegistrationsCertificate(t *testing.T) {
	for commonName, mark := range map[string]Mark{"pump-2": OK, "PUMP-2": OK, "pump-7": Warn} {
		examineRegistration(t, func(p *patient, _ *testbroker.DPS) {
			pair := testbroker.NewClientCert(commonName, time.Now().Add(-time.Hour), time.Now().Add(30*24*time.Hour))
			p.probe.Target.Network.Certificate = func(context.Context) (*tls.Certificate, error) { return &pair, nil }
			row := p.run()["credentials"]
			require.Equal(p.t, mark, row.Mark, "%+v", row)
			require.Equal(p.t, mark == Warn, strings.Contains(row.Hint, `"pump-2"`) && strings.Contains(row.Hint,
				"-registration-id"), row.Hint)
		})
	}
}
