package classic_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/classic"
)

const deviceID = "tractor-1"

// query is what the agent of a Contoso tractor asks.
var query = agent.Query{
	Installed:  agent.UpdateID{Provider: "Contoso", Name: "Tractor", Version: "1.0"},
	Properties: agent.Properties{{Name: "manufacturer", Value: "Contoso"}, {Name: "model", Value: "Tractor"}},
}

// rig is a hub with a device whose program uses the Service.
type rig struct {
	*testbroker.Hub
	t       *testing.T
	dev     hubdata.Device
	client  *device.Client
	service *classic.Service
}

// bubble runs a test in fake time, with a device that is connected over MQTT.
func bubble(t *testing.T, f func(r *rig)) {
	t.Helper()
	testkit.In2030(t, func(t *testing.T) {
		r := newRig(t)
		r.start(overMQTT(r.Hub))
		f(r)
	})
}

func newRig(t *testing.T) *rig {
	hub, dev := hubfixture.OpenDevice(t, nil, deviceID)
	return &rig{Hub: hub, t: t, dev: dev}
}

func overMQTT(hub *testbroker.Hub) transport.Transport {
	network := netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortMQTT)}
	return mqtt.New(&mqtt.Options{Network: network, ModelID: classic.ModelID})
}

func overAMQP(hub *testbroker.Hub) transport.Transport {
	network := netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortAMQP)}
	return amqp.New(&amqp.Options{Network: network, ModelID: classic.ModelID})
}

// start starts the device's program. It stops the one before, as a reset does.
func (r *rig) start(over transport.Transport) {
	r.stop()
	creds, err := device.ParseConnectionString(r.dev.ConnectionString())
	require.NoError(r.t, err)
	client, err := device.New(creds, over, nil)
	require.NoError(r.t, err)
	r.client = client
	r.t.Cleanup(func() { require.NoError(r.t, client.Close()) })
	r.service, err = classic.New(client)
	require.NoError(r.t, err)
	require.NoError(r.t, client.Open(context.Background()))
}

func (r *rig) stop() {
	if r.client != nil {
		require.NoError(r.t, r.client.Close())
	}
}

// deploy writes a property "service" to the twin.
func (r *rig) deploy(property string) {
	r.t.Helper()
	_, err := r.PatchDesired(deviceID, `{"deviceUpdate":{"__t":"c","service":`+property+`}}`)
	require.NoError(r.t, err)
}

// check calls Check.
func (r *rig) check() *agent.Answer {
	r.t.Helper()
	answer, err := r.service.Check(context.Background(), &query)
	require.NoError(r.t, err)
	return answer
}

// report calls Report.
func (r *rig) report(report agent.Report) {
	r.t.Helper()
	require.NoError(r.t, r.service.Report(context.Background(), &report))
}

// woken waits until the Service wakes the agent.
func (r *rig) woken() { <-r.service.Wake() }

// reported returns a property of the component in the reported properties.
func (r *rig) reported(property string) string {
	r.t.Helper()
	twin, err := r.Twin(deviceID)
	require.NoError(r.t, err)
	var all struct {
		DeviceUpdate map[string]json.RawMessage `json:"deviceUpdate"`
	}
	require.NoError(r.t, json.Unmarshal(twin.Reported, &all))
	if len(all.DeviceUpdate) > 0 {
		require.JSONEq(r.t, `"c"`, string(all.DeviceUpdate["__t"]))
	}
	return string(all.DeviceUpdate[property])
}

// patches returns how often the device has changed its reported properties.
func (r *rig) patches() int64 {
	twin, err := r.Twin(deviceID)
	require.NoError(r.t, err)
	return twin.ReportedVersion - 1
}

// offer is a deployment with a workflow, an update manifest of the version and a file.
func offer(workflow, version string) string {
	manifest, _ := json.Marshal(`{"manifestVersion":"5","updateId":{"provider":"Contoso","name":"Tractor","version":"` +
		version + `"}}`)
	return `{"workflow":` + workflow + `,"updateManifest":` + string(manifest) + `,"updateManifestSignature":"a.b.c",` +
		`"fileUrls":{"f1":"http://files.example.test/f1"},"rootKeyPackageUrl":"http://files.example.test/keys.json"}`
}
