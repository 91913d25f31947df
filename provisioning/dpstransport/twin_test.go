package dpstransport_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// twinEngines are the transports that carry twins.
var twinEngines = map[string]struct {
	port testbroker.Port
	make func(creds *transport.Credentials, o *netopt.Options) transport.Transport
}{
	"mqtt": {testbroker.PortMQTTS, func(creds *transport.Credentials, o *netopt.Options) transport.Transport {
		return mqtt.New(&mqtt.Options{Network: *o})
	}},
	"amqp": {testbroker.PortAMQPS, func(_ *transport.Credentials, o *netopt.Options) transport.Transport {
		return amqp.New(&amqp.Options{Network: *o})
	}},
}

// A twin that began anew has version numbers that the device knows from the old one. Its handler
// gets the complete properties nevertheless, over each transport with twins.
func TestATwinThatBeganAnewIsDeliveredAsAWhole(t *testing.T) {
	for name, e := range twinEngines {
		for what, row := range map[string]struct {
			change func(t *testing.T, d *testbroker.DPS, hubs map[string]*testbroker.Hub)
			want   []string
		}{
			"moved and reset": {func(t *testing.T, d *testbroker.DPS, hubs map[string]*testbroker.Hub) {
				require.NoError(t, d.Move("reg-0001", "hub2.example.test"))
				require.NoError(t, hubs["hub1.example.test"].RemoveDevice("reg-0001"))
			}, []string{`full 2 "first"`, `full 2 "second"`}},
			"moved with its data": {func(t *testing.T, d *testbroker.DPS, hubs map[string]*testbroker.Hub) {
				require.NoError(t, d.Change("reg-0001",
					func(e *dpsdata.Enrollment) { e.Reprovision = dpsdata.ReprovisionMigrate }))
				require.NoError(t, d.Move("reg-0001", "hub2.example.test"))
				require.NoError(t, hubs["hub1.example.test"].SetEnabled("reg-0001", false))
			}, []string{`full 2 "first"`, `full 2 "first"`}},
			"deleted and made again at the same hub": {func(t *testing.T, _ *testbroker.DPS,
				hubs map[string]*testbroker.Hub) {
				require.NoError(t, hubs["hub1.example.test"].RemoveDevice("reg-0001"))
			}, []string{`full 2 "first"`, `full 2 "second"`}},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				testkit.In2030(t, func(t *testing.T) {
					d, hubs := newService(t)
					enrollment, err := d.Enroll(dpsdata.Enrollment{ID: "reg-0001", Hubs: []string{"hub1.example.test"},
						Desired: `{"n":"first"}`, Reprovision: dpsdata.ReprovisionReset})
					require.NoError(t, err)
					var mu sync.Mutex
					var told []string
					tr := newTransport(t, d, enrollment.PrimaryKey, nil, func(creds *transport.Credentials,
						_ *provisioning.Assignment) transport.Transport {
						h := hubs[creds.Host]
						return e.make(creds, &netopt.Options{Dial: h.Dial(e.port), TLS: h.ClientTLS()})
					})
					c, err := device.New(tr.Credentials(), tr, nil)
					require.NoError(t, err)
					c.HandleDesired(func(_ context.Context, change device.Desired) {
						mu.Lock()
						defer mu.Unlock()
						told = append(told, text(change))
					})
					require.NoError(t, c.Open(t.Context()))
					synctest.Wait()
					require.NoError(t, d.Change("reg-0001",
						func(e *dpsdata.Enrollment) { e.Desired = `{"n":"second"}` }))
					row.change(t, d, hubs)
					time.Sleep(2 * time.Minute)
					require.NoError(t, c.Close())
					mu.Lock()
					defer mu.Unlock()
					require.Equal(t, row.want, told)
				})
			})
		}
	}
}

func text(change device.Desired) string {
	kind := "patch"
	if change.Full {
		kind = "full"
	}
	n, _ := jsonscan.Member(change.JSON, "n")
	return fmt.Sprintf("%s %d %s", kind, change.Version, n)
}
