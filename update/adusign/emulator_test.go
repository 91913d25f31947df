package adusign_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/update/adusign"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/dpsupdate"
)

// The emulator signs with code of its own, so that a mistake of one side shows here.
type emulator struct {
	t       *testing.T
	dps     *testbroker.DPS
	updates *testbroker.Updates
	asks    *dpsupdate.Service
}

func withEmulator(t *testing.T, test func(e *emulator)) {
	synctest.Test(t, func(t *testing.T) {
		d, err := testbroker.NewDPS(nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		u, err := testbroker.NewUpdates(nil)
		require.NoError(t, err)
		d.LinkUpdates(u)
		update := updatedata.UpdateID{Provider: "Contoso", Name: "Tractor", Version: "1.1"}
		require.NoError(t, u.Publish(updatedata.Update{ID: update, Compatibility: []map[string]string{{"model": "Tractor"}},
			Steps: []updatedata.Step{{Handler: "microsoft/swupdate:1", Files: []string{"a.swu"}}},
			Files: []updatedata.File{{Name: "a.swu", Content: []byte("image")}}}))
		_, err = u.Deploy(updatedata.Deployment{Update: update, KeepOffering: true})
		require.NoError(t, err)
		enrolled, err := d.Enroll(dpsdata.Enrollment{ID: "reg-1"})
		require.NoError(t, err)
		sign, err := transport.SharedKey(enrolled.PrimaryKey)
		require.NoError(t, err)
		id := &provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(), RegistrationID: "reg-1", Sign: sign}
		c, err := provisioning.New(id, dpshttp.New(&netopt.Options{Dial: d.Dial(testbroker.PortHTTPS), TLS: d.ClientTLS()}),
			nil)
		require.NoError(t, err)
		defer c.CloseIdle()
		asks, err := dpsupdate.New(c, nil)
		require.NoError(t, err)
		test(&emulator{t, d, u, asks})
	})
}

// offer asks for an update.
func (e *emulator) offer() *agent.Offer {
	e.t.Helper()
	q := &agent.Query{Profile: 1, Properties: agent.Properties{{Name: "model", Value: "Tractor"}}}
	a, err := e.asks.Check(e.t.Context(), q)
	require.NoError(e.t, err)
	require.NotNil(e.t, a.Offer)
	return a.Offer
}

// download returns the root key package as a device gets it.
func (e *emulator) download() []byte {
	e.t.Helper()
	web := &http.Client{Transport: &http.Transport{DialContext: e.dps.Dial(testbroker.PortHTTP),
		DisableKeepAlives: true}}
	r, err := web.Get("http://" + e.dps.HostName() + "/updates/rootkeypackage-1.json")
	require.NoError(e.t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(e.t, err)
	return text
}

// keys returns keys that trust the roots of the emulator, as a device has them from its factory.
func (e *emulator) keys() *adusign.Keys {
	e.t.Helper()
	k, err := adusign.NewKeys(&adusign.KeysOptions{Roots: e.updates.Roots()})
	require.NoError(e.t, err)
	return k
}

func TestTheEmulatorSignsAsTheServiceDoes(t *testing.T) {
	published, err := os.ReadFile("testdata/production.jws")
	require.NoError(t, err)
	withEmulator(t, func(e *emulator) {
		o := e.offer()
		require.NoError(t, e.keys().Verify(o.Manifest, o.Signature))
		require.Equal(t, form(t, strings.TrimSpace(string(published))), form(t, o.Signature))
		require.NoError(t, e.keys().Update(e.download()))
	})
}

var values = regexp.MustCompile(`"(sjwk|n|sha256|kid)":"[^"]*"`)

// form returns the parts of a signature and of its signing key without what differs from one to
// another.
func form(t *testing.T, signature string) (all []string) {
	for range 2 {
		parts := strings.Split(signature, ".")
		for _, part := range parts[:2] {
			text, err := base64.RawURLEncoding.DecodeString(part)
			require.NoError(t, err)
			if m := regexp.MustCompile(`"sjwk":"([^"]*)"`).FindSubmatch(text); m != nil {
				signature = string(m[1])
			}
			all = append(all, values.ReplaceAllString(string(text), `"$1":""`))
		}
	}
	return all
}

// A device refuses each wrong offer, except those whose signature is right: it finds them by the
// manifest, or at the files.
func TestWrongOffersOfTheEmulator(t *testing.T) {
	want := map[string]string{
		"manifest hash": "another manifest", "manifest": "another manifest", "algorithm": "alg", "signature": "not signed",
		"unknown root": "kid", "forged root": "not signed", "test root": "kid", "forged key": "not signed",
		"disabled root": "kid", "revoked key": "revoked",
		"workflow": "", "size": "", "file hash": "", "huge": "", "no files": "", "http": "",
	}
	withEmulator(t, func(e *emulator) {
		e.updates.RevokeSigningKey()
		require.NoError(t, e.updates.DisableRoot("ADU.260102.R"))
		k := e.keys()
		require.NoError(t, k.Update(e.download()))
		texts := fault.Wrongs(fault.WrongOffer)
		require.Len(t, texts, len(want))
		for _, text := range texts {
			if text == "huge" { // the client takes no such answer
				continue
			}
			in := e.dps.Inject(fault.Fault{Kind: fault.WrongOffer, Text: text})
			o := e.offer()
			require.Equal(t, 1, in.Fired(), text)
			err := k.Verify(o.Manifest, o.Signature)
			if want[text] == "" {
				require.NoError(t, err, text)
				continue
			}
			require.ErrorContains(t, err, want[text], text)
		}
	})
}

func TestWrongRootKeysOfTheEmulator(t *testing.T) {
	withEmulator(t, func(e *emulator) {
		e.updates.RotateRoot()
		held := e.keys()
		require.NoError(t, held.Update(e.download()))
		for _, text := range fault.Wrongs(fault.WrongRootKeys) {
			for _, k := range []*adusign.Keys{held, e.keys()} {
				e.dps.Inject(fault.Fault{Kind: fault.WrongRootKeys, Text: text})
				err := k.Update(e.download())
				if text == "missing" || text == "older" && k != held {
					require.NoError(t, err, "%s: a new root need not sign, and any version is new to a new device", text)
					continue
				}
				require.Error(t, err, text)
			}
		}
		o := e.offer()
		require.NoError(t, held.Verify(o.Manifest, o.Signature), "by the new root")
		require.ErrorContains(t, e.keys().Verify(o.Manifest, o.Signature), "kid", "without the package")
	})
}
