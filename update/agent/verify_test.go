package agent_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// resign signs a changed manifest as its publisher would.
func resign(o *agent.Offer, old, replacement string) {
	o.Manifest = []byte(strings.Replace(string(o.Manifest), old, replacement, 1))
	o.Signature = signed(o.Manifest)
}

// Nothing of a refused offer is fetched, no handler is called, and the report says why.
func TestOffersAreRefusedBeforeAByteIsFetched(t *testing.T) {
	change := func(old, replacement string) func(*agent.Offer, *rig) {
		return func(o *agent.Offer, _ *rig) { resign(o, old, replacement) }
	}
	have := func(version string) func(*agent.Offer, *rig) {
		return func(_ *agent.Offer, r *rig) {
			r.options.Installed = func() agent.UpdateID {
				return agent.UpdateID{Provider: "contoso", Name: "tractor", Version: version}
			}
		}
	}
	long := strings.Repeat("x", agent.MaxManifest+1)
	for name, row := range map[string]struct {
		change func(o *agent.Offer, r *rig)
		want   string
	}{
		"signature of another manifest": {func(o *agent.Offer, _ *rig) { o.Manifest[3] ^= 1 }, "not trusted"},
		"malformed manifest":            {change(`"5"`, `"9"`), "manifestVersion"},
		"another device":                {change(`"Tractor"}]`, `"Plough"}]`), "another kind of device"},
		"a kind with more properties":   {change(`"Tractor"}]`, `"Tractor","x":"y"}]`), "another kind of device"},

		"an older version":                  {have("1.10"), "older than the installed one"},
		"a version that cannot be compared": {have("1.x"), "older than the installed one"},
		"no handler": {func(_ *agent.Offer, r *rig) {
			r.options.Handlers = map[string]agent.Handler{"other": handler{r.device}}
		}, `no handler for "h"`},

		"no URL":              {func(o *agent.Offer, _ *rig) { delete(o.URLs, "f0") }, `no URL for file "f0"`},
		"a large manifest":    {func(o *agent.Offer, _ *rig) { o.Manifest = []byte(long) }, "more than 64 KB"},
		"a large signature":   {func(o *agent.Offer, _ *rig) { o.Signature = long }, "more than 8 KB"},
		"a large URL":         {func(o *agent.Offer, _ *rig) { o.URLs["f0"] = long }, "more than 4096 bytes"},
		"a large URL of keys": {func(o *agent.Offer, _ *rig) { o.RootKeysURL = long }, "more than 4096 bytes"},
		"many URLs": {func(o *agent.Offer, _ *rig) {
			for i := range 300 {
				o.URLs[fmt.Sprint(i)] = "https://x"
			}
		}, "more than 256"},
		"a Verify that panics": {func(_ *agent.Offer, r *rig) {
			r.options.Verify = func([]byte, string) error { panic("no key") }
		}, "panicked"},
		"more than the store takes": {func(_ *agent.Offer, r *rig) {
			r.store.fail = func() error {
				if r.store.saves == 1 {
					return fault(transport.TooLarge)
				}
				return nil
			}
		}, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, func(t *testing.T, r *rig) {
				r.offered("wf-1", "1.9", "image")
				row.change(r.service.offer, r)
				r.runs(3 * time.Hour)
				f := r.final()
				require.Equal(t, agent.OutcomeFailed, f.Result.Outcome)
				require.NotEqual(t, agent.OriginNotApplicable, f.Result.Origin)
				require.Contains(t, f.Result.Details, row.want)
				require.Empty(t, r.files.fetched)
				require.Empty(t, r.device.calls)
				if f.Steps != nil {
					require.Equal(t, []agent.Result{f.Result}, f.Steps, "the service wants a result for each step")
				}
			})
		})
	}
}

func TestAnOlderVersionIsInstalledIfTheProgramAllowsIt(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		have := agent.UpdateID{Provider: "Contoso", Name: "Tractor", Version: "1.10"}
		r.options.Installed = func() agent.UpdateID { return have }
		r.options.AllowOlder = func(from, to agent.UpdateID) bool { return from == have && to.Version == "1.9" }
		r.offered("wf-1", "1.9", "image")
		r.runs(time.Hour)
		require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
	})
}

// An attacker that can replay what the service has sent gets no older image installed, whatever
// workflow it names.
func TestAReplayedOlderOfferIsRefused(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.offered("wf-1", "1.0", "old image")
		r.runs(time.Hour)
		old := *r.service.offer
		r.offered("wf-2", "2.0", "new image")
		r.runs(time.Hour)
		for _, id := range []string{"wf-1", "wf-3"} {
			replayed := old
			replayed.WorkflowID = id
			r.service.offer = &replayed
			r.runs(time.Hour)
		}
		finals := r.service.finals()
		require.Len(t, finals, 3, "the same workflow again is no news")
		require.Contains(t, finals[2].Result.Details, "older")
		require.Equal(t, "2.0", finals[2].Installed.Version)
		require.Equal(t, "new image", r.device.installed[0])
	})
}

func TestCompatibilityIsComparedAsTheServiceDoes(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.offered("wf-1", "1.0", "image")
		resign(r.service.offer, `[{"manufacturer":"Contoso","model":"Tractor"}]`,
			`[{"model":"plough"},{"deviceManufacturer":"CONTOSO","deviceModel":"tractor"}]`)
		r.runs(time.Hour)
		require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
	})
}

func TestRootKeysAreFetchedBeforeAnOfferIsVerified(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		var order []string
		verify := r.options.Verify
		r.options.Verify = func(m []byte, s string) error { order = append(order, "verify"); return verify(m, s) }
		r.options.RootKeys = func(text []byte) error { order = append(order, string(text)); return nil }
		r.service.answer.Memo.RootKeysURL = "https://keys/1"
		r.files.content["https://keys/1"] = []byte("keys 1")
		r.files.content["https://keys/2"] = []byte("keys 2")
		r.files.fail = func(n int) error {
			if n < 4 {
				return fault(transport.Unavailable)
			}
			return nil
		}
		r.offered("wf-1", "1.0", "image")
		r.runs(time.Hour)
		r.offered("wf-2", "2.0", "image 2")
		r.service.offer.RootKeysURL = "https://keys/2"
		r.runs(time.Hour)
		require.Equal(t, []string{"keys 1", "verify", "keys 2", "verify"}, order)
		require.Len(t, r.service.finals(), 2)

		r.options.RootKeys = func([]byte) error { return errors.New("older than version 2") }
		r.offered("wf-3", "3.0", "image 3")
		r.runs(time.Hour)
		require.Contains(t, r.service.finals()[2].Result.Details, "older than version 2")
		r.files.content["https://keys/1"] = make([]byte, 64<<10+1)
		r.offered("wf-4", "4.0", "image 4")
		r.runs(time.Hour)
		require.Contains(t, r.service.finals()[3].Result.Details, "more than 64 KB")
		require.Equal(t, "image 2", r.device.installed[0])
	})
}

// Where texts must be short, the signed manifest names a file with the whole one.
func TestAManifestMayBeInAFile(t *testing.T) {
	for name, row := range map[string]struct {
		wrap func(manifest []byte) string
		want string
	}{
		"a text":          {func(m []byte) string { return fmt.Sprintf(`{"updateManifest":%q}`, m) }, ""},
		"an object":       {func(m []byte) string { return fmt.Sprintf(`{"updateManifest":%s}`, m) }, ""},
		"nothing":         {func([]byte) string { return `{}` }, "no JSON object"},
		"another content": {nil, "SHA-256"},
		"too much":        {func([]byte) string { return strings.Repeat(" ", 2*agent.MaxManifest+1) }, "more than 128 KB"},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, func(t *testing.T, r *rig) {
				r.offered("wf-1", "1.0", "image")
				o := r.service.offer
				content := "other"
				if row.wrap != nil {
					content = row.wrap(o.Manifest)
				}
				sum := sha256.Sum256([]byte(content))
				if row.wrap == nil {
					content = "OTHER"
				}
				o.URLs["m"] = "https://files/m"
				r.files.content["https://files/m"] = []byte(content)
				o.Manifest = fmt.Appendf(nil, `{"manifestVersion":"5","detachedManifestFileId":"m","files":{"m":{`+
					`"fileName":"m.json","sizeInBytes":%d,"hashes":{"sha256":%q}}}}`, len(content),
					base64.StdEncoding.EncodeToString(sum[:]))
				o.Signature = signed(o.Manifest)
				r.device.next["apply 0"] = agent.NextRestart
				r.runs(time.Hour)
				if row.want == "" {
					require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome, r.final().Result.Details)
					require.Equal(t, "image", r.device.installed[0])
					return
				}
				require.Contains(t, r.final().Result.Details, row.want)
				require.Empty(t, r.device.calls)
			})
		})
	}
}

// The file with the manifest is part of what is verified.
func TestASmallManifestMustNameItsFile(t *testing.T) {
	const file = `"files":{"m":{"fileName":"m.json","sizeInBytes":%d,"hashes":{"sha256":` +
		`"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}}}`
	for want, manifest := range map[string]string{
		"is not the id of a file": `{"detachedManifestFileId":"x",` + fmt.Sprintf(file, 1) + `}`,
		"without a URL":           `{"detachedManifestFileId":"m",` + fmt.Sprintf(file, 1) + `}`,
		"sizeInBytes":             `{"detachedManifestFileId":"m",` + fmt.Sprintf(file, -1) + `}`,
	} {
		inRig(t, func(t *testing.T, r *rig) {
			r.service.offer = &agent.Offer{WorkflowID: "wf-1", Manifest: []byte(manifest), Signature: signed([]byte(manifest))}
			r.runs(time.Hour)
			require.Contains(t, r.final().Result.Details, want)
			require.Empty(t, r.files.fetched)
		})
	}
}

// A malformed answer costs one Check and no more.
func TestAnswersBeyondTheLimitsAreRefused(t *testing.T) {
	for name, change := range map[string]func(a *agent.Answer, o *agent.Offer){
		"no workflow id":     func(_ *agent.Answer, o *agent.Offer) { o.WorkflowID = "" },
		"a long workflow id": func(_ *agent.Answer, o *agent.Offer) { o.WorkflowID = strings.Repeat("w", 129) },
		"a long etag":        func(a *agent.Answer, _ *agent.Offer) { a.Memo.ConfigETag = strings.Repeat("e", 129) },
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, func(t *testing.T, r *rig) {
				r.offered("wf-1", "1.0", "image")
				change(&r.service.answer, r.service.offer)
				r.runs(3*time.Hour + time.Minute)
				require.Empty(t, r.service.reports)
				require.Empty(t, r.device.calls)
				require.Len(t, r.service.queries, 4)
			})
		})
	}
}
