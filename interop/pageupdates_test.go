package interop

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/dpsupdate"
)

// updater is the update service as the device sensor-1 of a testhub sees it.
type updater struct {
	t testing.TB
	*dpsupdate.Service
	installed agent.UpdateID
}

func newUpdater(t testing.TB, h *testhub) *updater {
	pem, err := os.ReadFile(h.CA)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem))
	key := h.DPS.Enrolled[0]
	sign, err := transport.SharedKey(key.Key)
	require.NoError(t, err)
	carrier := dpshttp.New(&netopt.Options{Addr: loopback(h.DPS.Ports["https"]), TLS: &tls.Config{RootCAs: roots}})
	client, err := provisioning.New(&provisioning.Identity{Endpoint: h.DPS.Host, IDScope: h.DPS.IDScope,
		RegistrationID: key.ID, Sign: sign}, carrier, nil)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdle)
	service, err := dpsupdate.New(client, nil)
	require.NoError(t, err)
	return &updater{t, service, agent.UpdateID{Provider: "Contoso", Name: "Toaster", Version: "0.9"}}
}

// check asks for an update as a toaster, and returns the workflow of the offer.
func (u *updater) check() string {
	u.t.Helper()
	answer, err := u.Check(soon(u.t), &agent.Query{Profile: 1, Installed: u.installed, Properties: agent.Properties{
		{Name: "manufacturer", Value: "Contoso"}, {Name: "model", Value: "Toaster"}}})
	require.NoError(u.t, err)
	require.NotNil(u.t, answer.Offer)
	return answer.Offer.WorkflowID
}

// fail reports that the only step of an update has failed.
func (u *updater) fail(workflow, why string) {
	u.t.Helper()
	result := agent.Result{Outcome: agent.OutcomeFailed, Origin: agent.OriginAgentExtension, Code: agent.CodeFailure,
		Extended: []uint32{0x30000001}, Details: why}
	require.NoError(u.t, u.Report(soon(u.t), &agent.Report{WorkflowID: workflow, Installed: u.installed,
		Result: result, Steps: []agent.Result{result}}))
}

// toaster is a request that publishes an update.
const toaster = `{"importManifest": {"updateId": {"provider": "Contoso", "name": "Toaster", "version": "1.0"},
	"compatibility": [{"manufacturer": "Contoso", "model": "Toaster"}],
	"instructions": {"steps": [{"handler": "microsoft/swupdate:1", "files": ["firmware.swu"]}]},
	"files": [{"filename": "firmware.swu", "sizeInBytes": 5,
		"hashes": {"sha256": "YQXWzHavQAMl6U1YjOURvlv9u3O0N9xR7KQ5F9ekPj0="}}],
	"createdDateTime": "2026-11-28T12:00:00Z", "manifestVersion": "5.0"}, "files": {"firmware.swu": "aW1hZ2U="}}`

// useUpdates publishes an update, deploys it to a device, and sees that the device fails.
func useUpdates(t *testing.T, h *testhub, b *browser, _ *pageDevice) {
	b.tab("Updates")
	b.shows("No device has asked for an update.")
	b.focus("summary", "e.innerText === args[1]", "Add an update")
	b.do(chromedp.KeyEvent("\r"))
	b.attach("#updates input[type=file]", "firmware.swu", "image")
	b.press("Add the update")
	b.shows("Contoso/Toaster/1.0 is published.")
	b.shows("firmware.swu, 5 bytes")
	b.focus("summary", "e.innerText === args[1]", "Deploy an update")
	b.do(chromedp.KeyEvent("\r"))
	b.fill("To devices", "sensor-1")
	b.press("Deploy")
	b.shows("Contoso/Toaster/1.0 is deployed.")
	deployment := object(h.ask(t, "GET", "/updates/deployments", "")["deployments"].([]any)[0].(map[string]any))
	require.Equal(t, []any{"sensor-1"}, deployment["devices"])

	device := newUpdater(t, h)
	workflow := device.check()
	require.Equal(t, deployment["workflow"], workflow)
	b.shows("1 OFFERED")
	device.fail(workflow, "<b>the image is damaged</b>")
	b.shows("1 FAILED")
	b.focus("summary", "e.innerText.includes(args[1])", "the image is damaged")
	b.do(chromedp.KeyEvent("\r"))
	b.until("document.querySelector('#updates .steps li').innerText.includes('<b>the image is damaged</b>')")

	b.press("Withdraw Contoso/Toaster/1.0")
	b.shows("Contoso/Toaster/1.0 is withdrawn.")
	b.press("Remove Contoso/Toaster/1.0")
	b.until("document.querySelector('#ask').open")
	b.do(chromedp.KeyEvent("\t"), chromedp.KeyEvent("\r"))
	b.shows("Contoso/Toaster/1.0 is removed.")
	require.Empty(t, h.ask(t, "GET", "/updates", "")["updates"])
}

// attach chooses a file for an input.
func (b *browser) attach(input, name, content string) {
	b.t.Helper()
	b.until(`((input, data) => { data.items.add(new File([args[2]], args[1])); input.files = data.files;
		input.dispatchEvent(new Event("change")); return input.files.length === 1
		})(document.querySelector(args[0]), new DataTransfer())`, input, name, content)
}
