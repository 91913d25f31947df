package dpsupdate_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsamqp"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/update/adusign"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/dpsupdate"
)

// A world is a provisioning service with an update service, one hub and one device.
type world struct {
	*testbroker.DPS
	updates *testbroker.Updates
	hub     *testbroker.Hub
	client  *provisioning.Client
	*dpsupdate.Service
}

var carriers = map[string]struct {
	port testbroker.Port
	open func(o *netopt.Options) provisioning.Carrier
}{
	"http": {testbroker.PortHTTPS, func(o *netopt.Options) provisioning.Carrier { return dpshttp.New(o) }},
	"mqtt": {testbroker.PortMQTTS, func(o *netopt.Options) provisioning.Carrier { return dpsmqtt.New(o) }},
	"amqp": {testbroker.PortAMQPS, func(o *netopt.Options) provisioning.Carrier { return dpsamqp.New(o) }},
}

// inWorld runs f in fake time with a device that proves its identity with a key or a certificate.
func inWorld(t *testing.T, carrier string, certificate bool, f func(t *testing.T, w *world)) {
	testkit.In2030(t, func(t *testing.T) {
		d, err := testbroker.NewDPS(nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		hub, err := testbroker.New(&testbroker.Options{HostName: "hub1.example.test"})
		require.NoError(t, err)
		defer func() { require.NoError(t, hub.Close()) }()
		require.NoError(t, d.Link(hub))
		u, err := testbroker.NewUpdates(nil)
		require.NoError(t, err)
		d.LinkUpdates(u)
		network := &netopt.Options{Dial: d.Dial(carriers[carrier].port), TLS: d.ClientTLS()}
		id := &provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(), RegistrationID: "reg-1"}
		if certificate {
			root := testbroker.NewCertAuthority("root")
			_, err := d.Enroll(dpsdata.Enrollment{ID: "grp", Group: true, Certificates: []*x509.Certificate{root.Cert()}})
			require.NoError(t, err)
			cert := root.NewClientCert("reg-1", time.Time{}, time.Time{})
			network.Certificate = func(context.Context) (*tls.Certificate, error) { return &cert, nil }
		} else {
			e, err := d.Enroll(dpsdata.Enrollment{ID: "reg-1"})
			require.NoError(t, err)
			id.Sign, err = transport.SharedKey(e.PrimaryKey)
			require.NoError(t, err)
		}
		client, err := provisioning.New(id, carriers[carrier].open(network), nil)
		require.NoError(t, err)
		defer client.CloseIdle()
		s, err := dpsupdate.New(client, nil)
		require.NoError(t, err)
		f(t, &world{d, u, hub, client, s})
	})
}

// inEachWorld runs f over HTTPS and MQTT.
func inEachWorld(t *testing.T, f func(t *testing.T, w *world)) {
	for _, carrier := range []string{"http", "mqtt"} {
		t.Run(carrier, func(t *testing.T) { inWorld(t, carrier, false, f) })
	}
}

// deploy offers an update under this workflow id.
func (w *world) deploy(t *testing.T, workflow string) {
	t.Helper()
	id := updatedata.UpdateID{Provider: "Contoso", Name: "Tractor", Version: "2.0"}
	require.NoError(t, w.updates.Publish(updatedata.Update{ID: id,
		Compatibility: []map[string]string{{"manufacturer": "contoso"}},
		Steps:         []updatedata.Step{{Handler: "test/x:1", Files: []string{"image"}}},
		Files:         []updatedata.File{{Name: "image", Content: []byte("new")}}}))
	_, err := w.updates.Deploy(updatedata.Deployment{WorkflowID: workflow, Update: id})
	require.NoError(t, err)
}

// success is the last report about an update of one step.
func success(workflow string) *agent.Report {
	done := agent.Result{Outcome: agent.OutcomeSucceeded, Code: agent.CodeSuccess}
	return &agent.Report{WorkflowID: workflow, Result: done, Steps: []agent.Result{done},
		Installed: agent.UpdateID{Provider: "Contoso", Name: "Tractor", Version: "2.0"}}
}

func TestADeviceIsOfferedAnUpdateAndReports(t *testing.T) {
	for _, carrier := range []string{"http", "mqtt"} {
		for proof, certificate := range map[string]bool{"SAS": false, "X.509": true} {
			t.Run(carrier+" "+proof, func(t *testing.T) {
				inWorld(t, carrier, certificate, theWholeWay)
			})
		}
	}
}

func theWholeWay(t *testing.T, w *world) {
	w.deploy(t, "wf-1")
	q := query()
	q.Onboarding, q.Installed, q.Memo = true, agent.UpdateID{}, agent.Memo{}
	a, err := w.Check(t.Context(), q)
	require.NoError(t, err)
	require.NotEmpty(t, a.Memo.AgentInfoETag)
	require.NotEmpty(t, a.Memo.ConfigETag)
	require.NotEmpty(t, a.Memo.RootKeysURL)
	require.Equal(t, "wf-1", a.Offer.WorkflowID)
	require.NoError(t, adusign.Roots(w.updates.Roots()).Verify(a.Offer.Manifest, a.Offer.Signature), "the text as signed")
	m, err := agent.ParseManifest(a.Offer.Manifest)
	require.NoError(t, err)
	require.Contains(t, a.Offer.URLs, m.Files[0].ID)

	working := success("wf-1")
	working.Result = agent.Result{Outcome: agent.OutcomeInProgress, Code: agent.CodeInProgress}
	working.Installed = agent.UpdateID{}
	require.NoError(t, w.Report(t.Context(), working))
	for range 2 {
		require.NoError(t, w.Report(t.Context(), success("wf-1")), "it may come twice")
	}
	failed := success("wf-1")
	failed.Result = agent.Result{Outcome: agent.OutcomeFailed, Origin: agent.OriginAgentExtension, Code: -1}
	require.ErrorIs(t, w.Report(t.Context(), failed), transport.Conflict)
	require.ErrorIs(t, w.Report(t.Context(), success("wf-2")), transport.NotFound)

	q = query()
	q.Installed, q.Memo = success("").Installed, a.Memo
	b, err := w.Check(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, &agent.Answer{Memo: a.Memo}, b, "what did not change is not sent again")

	seen := w.updates.Device("reg-1")
	require.Equal(t, 1, seen.Onboarding)
	require.Equal(t, 1, seen.Checks)
	require.Equal(t, "2.0", seen.Installed.Version)
	require.Equal(t, updatedata.OutcomeSucceeded, seen.Last().Outcome())
	requests := w.Requests()
	require.Len(t, requests, 7)
	for _, r := range requests {
		require.Equal(t, "2026-11-02-preview", r.APIVersion)
		require.Equal(t, requests[0].Connection, r.Connection, "one connection")
	}
}

func TestOutdatedETagsOfTheServiceAreReplaced(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		q := query()
		q.Memo = agent.Memo{}
		first, err := w.Check(t.Context(), q)
		require.NoError(t, err)
		q.Memo = first.Memo
		q.Memo.AgentInfoETag, q.Memo.RootKeysURL = "unknown", "old"
		a, err := w.Check(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, first.Memo.AgentInfoETag, a.Memo.AgentInfoETag)
		q.Memo.ConfigETag = "unknown"
		a, err = w.Check(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, first.Memo, a.Memo)
	})
}

// After any fault the next call works, and the error before says that it may.
func TestFaultsOfTheServicePass(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		w.deploy(t, "wf-1")
		check := func() error {
			q := query()
			q.Memo = agent.Memo{}
			a, err := w.Check(t.Context(), q)
			if err == nil {
				require.Equal(t, "wf-1", a.Offer.WorkflowID)
			}
			return err
		}
		report := func() error {
			r := success("wf-1")
			r.Result = agent.Result{Outcome: agent.OutcomeInProgress, Code: agent.CodeInProgress}
			return w.Report(t.Context(), r)
		}
		for _, f := range []fault.Fault{
			{Kind: fault.DropBeforeProvisioning}, {Kind: fault.DropAfterProvisioning}, {Kind: fault.SwallowProvisioning},
			{Kind: fault.SlowProvisioning, Delay: 50 * time.Second}, {Kind: fault.DuplicateProvisioning},
			{Kind: fault.MisnameProvisioning}, {Kind: fault.AnswerBeforePuback}, {Kind: fault.ReorderProperties},
			{Kind: fault.GarbleProvisioning}, {Kind: fault.WrongRetryAfter, Text: "3s"},
			{Kind: fault.RefuseProvisioning, Status: 503, ErrorCode: 503001},
		} {
			for _, call := range []func() error{check, report} {
				require.NoError(t, call(), "a connection that may be lost")
				in := w.Inject(f)
				if err := call(); err != nil {
					require.True(t, errfilter.Of(err).Retry, "%v: %v", f, err)
				}
				in.Remove()
				require.NoError(t, call(), f)
			}
		}
	})
}

func TestADelayOfTheServiceIsReadFromEachForm(t *testing.T) {
	for carrier, delays := range map[string]map[string]time.Duration{
		"http": {"2": 2 * time.Second, "": 0, "0": 0, "3s": 0, "-1": 0},
		"mqtt": {"2": 2 * time.Second, "": 0, "0": 0, "3s": 0, "-1": 0, "Thu, 01 Jan 2099 00:00:07 GMT": 0,
			"86401": 24 * time.Hour, "86400": 24 * time.Hour},
	} {
		inWorld(t, carrier, false, func(t *testing.T, w *world) {
			for text, want := range delays {
				w.Inject(fault.Fault{Kind: fault.WrongRetryAfter, Text: text})
				q := query()
				q.Memo = agent.Memo{}
				a, err := w.Check(t.Context(), q)
				require.NoError(t, err)
				require.Equal(t, want, a.RetryAfter, text)
			}
		})
	}
}

func TestAServiceWithoutUpdatesOffersNone(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		w.Inject(fault.Fault{Kind: fault.RefuseUpdate, Text: "UPDATE_ACCOUNT_NOT_LINKED", Times: 2})
		a, err := w.Check(t.Context(), query())
		require.NoError(t, err)
		require.Equal(t, &agent.Answer{Memo: query().Memo}, a)
		require.ErrorIs(t, w.Report(t.Context(), success("wf-1")), transport.NotFound)
	})
}

// A device whose hub comes from the service checks ahead of its registration. Over AMQP that fails,
// and the device comes to its hub all the same.
func TestADeviceChecksAheadOfItsRegistration(t *testing.T) {
	for carrier, checks := range map[string]bool{"http": true, "mqtt": true, "amqp": false} {
		t.Run(carrier, func(t *testing.T) {
			inWorld(t, carrier, false, func(t *testing.T, w *world) {
				w.deploy(t, "wf-1")
				var offered *agent.Answer
				var failed error
				w.client.Before(func(ctx context.Context) error {
					q := query()
					q.Onboarding, q.Memo = true, agent.Memo{}
					offered, failed = w.Check(ctx, q)
					return failed
				})
				inner := func(*transport.Credentials, *provisioning.Assignment) transport.Transport {
					return mqtt.New(&mqtt.Options{Network: netopt.Options{Dial: w.hub.Dial(testbroker.PortMQTTS),
						TLS: w.hub.ClientTLS()}})
				}
				toHub, err := dpstransport.New(w.client, inner, nil)
				require.NoError(t, err)
				client, err := device.New(toHub.Credentials(), toHub, nil)
				require.NoError(t, err)
				require.NoError(t, client.Open(t.Context()))
				require.NoError(t, client.Close())
				requests := w.Requests()
				if !checks {
					require.ErrorIs(t, failed, transport.Unsupported)
					require.ErrorContains(t, failed, "AMQP")
					require.Equal(t, dpsdata.OperationRegister, requests[0].Operation)
					return
				}
				require.NoError(t, failed)
				require.NotNil(t, offered.Offer)
				require.Equal(t, dpsdata.OperationCheckOnboarding, requests[0].Operation)
				require.Equal(t, dpsdata.OperationRegister, requests[1].Operation)
				require.Equal(t, requests[0].Connection, requests[1].Connection)
			})
		})
	}
}
