package dpsupdate_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// offer returns an answer with an offer, in which old is replaced with changed.
func offer(old, changed string) string {
	const text = `{"serviceConfiguration":{"rootKeyDownloadUrl":"https://keys.example.test/1","pollIntervalSeconds":5},` +
		`"serviceConfigEtag":"s1","agentInfoEtag":"a1","future":[{"x":null}],"updateMetadata":{"workflowId":"wf-9",` +
		`"updateManifest":"{\"a\":\"\\u00e9\\n\"}","updateManifestSignature":"x.y.z","future":1,` +
		`"fileUrls":{"f2f4":"https://files.example.test/f2f4?sig=1\u002626","f3":"http://files.example.test/f3"}}}`
	return strings.Replace(text, old, changed, 1)
}

func TestAnOfferIsReadWhole(t *testing.T) {
	a, err := answering(200, offer("", ""), 0).service(t, nil).Check(t.Context(), query())
	require.NoError(t, err)
	require.Equal(t, &agent.Answer{
		Memo: agent.Memo{AgentInfoETag: "a1", ConfigETag: "s1", RootKeysURL: "https://keys.example.test/1"},
		Offer: &agent.Offer{WorkflowID: "wf-9", Manifest: []byte(`{"a":"\u00e9\n"}`), Signature: "x.y.z",
			URLs: map[string]string{"f2f4": "https://files.example.test/f2f4?sig=1&26", "f3": "http://files.example.test/f3"}},
	}, a)
}

func TestAnAnswerWithoutUpdateIsASuccess(t *testing.T) {
	long := strings.Repeat("e", 129)
	for body, memo := range map[string]agent.Memo{
		`{}`:                      {AgentInfoETag: "aaa", ConfigETag: "bbb", RootKeysURL: "u"},
		`{"updateMetadata":null}`: {AgentInfoETag: "aaa", ConfigETag: "bbb", RootKeysURL: "u"},
		`{"serviceConfigEtag":"s","serviceConfiguration":null}`: {AgentInfoETag: "aaa", ConfigETag: "s",
			RootKeysURL: "u"},
		`{"agentInfoEtag":"a","serviceConfiguration":{}}`:                     {AgentInfoETag: "a", ConfigETag: "bbb"},
		`{"agentInfoEtag":"` + long + `","serviceConfigEtag":"` + long + `"}`: {RootKeysURL: "u"},
		`{"agentInfoEtag":7}`: {ConfigETag: "bbb", RootKeysURL: "u"},
	} {
		q := query()
		q.Memo.RootKeysURL = "u"
		a, err := answering(200, body, 30).service(t, nil).Check(t.Context(), q)
		require.NoError(t, err, body)
		require.Equal(t, &agent.Answer{Memo: memo, RetryAfter: 30 * time.Second}, a, body)
	}
}

func TestAMalformedOfferIsRefusedWhole(t *testing.T) {
	urls := `"fileUrls":{`
	var many []string
	for i := range agent.MaxFiles {
		many = append(many, fmt.Sprintf(`"id%d":"u"`, i))
	}
	for what, body := range map[string]string{
		"workflowId is missing":              offer(`"workflowId"`, `"workflow"`),
		"workflowId is missing, no text":     offer(`"wf-9"`, `9`),
		"workflowId is missing, no text or":  offer(`"wf-9"`, `""`),
		"workflowId ":                        offer("wf-9", strings.Repeat("w", 129)),
		"updateManifest is missing":          offer(`"updateManifest"`, `"manifest"`),
		"updateManifest is missing, no text": offer(`"{\"a\":\"\\u00e9\\n\"}"`, `{"a":1}`),
		"updateManifest ":                    offer(`{\"a\"`, strings.Repeat("m", agent.MaxManifest)),
		"updateManifestSignature is missing": offer(`"x.y.z"`, `null`),
		"updateManifestSignature ":           offer(`x.y.z`, strings.Repeat("s", agent.MaxSignature+1)),
		"fileUrls is missing or no object":   offer(`"fileUrls"`, `"urls"`),
		"fileUrls is missing or":             offer(`"fileUrls":{`, `"fileUrls":[1],"x":{`),
		"an address in fileUrls is no text":  offer(`"http://files.example.test/f3"`, `7`),
		"an address in fileUrls":             offer("/f3", strings.Repeat("u", agent.MaxURL)),
		"fileUrls has more than":             offer(urls, urls+strings.Join(many, ",")+","),
		"the address of the root keys":       offer("https://keys", strings.Repeat("k", agent.MaxURL)),
	} {
		a, err := answering(200, body, 0).service(t, nil).Check(t.Context(), query())
		require.ErrorIs(t, err, transport.Protocol, what)
		require.ErrorContains(t, err, what)
		require.False(t, errfilter.Of(err).Retry, "the same offer would come again")
		require.Nil(t, a)
	}
}

// An answer that was cut off, or that another peer gave, may be right the next time.
func TestWhatIsNoAnswerIsAFailure(t *testing.T) {
	for _, body := range []string{"", offer("", "")[:200], "[]", "<html>", `{"a":"` + "\x80" + `"}`} {
		s := answering(200, body, 0).service(t, nil)
		_, err := s.Check(t.Context(), query())
		require.ErrorIs(t, err, transport.Protocol, body)
		require.True(t, errfilter.Of(err).Retry, body)
		if body != "" {
			require.ErrorIs(t, s.Report(t.Context(), final()), transport.Protocol, body)
		}
	}
	require.ErrorIs(t, answering(200, `{"errorCode":503000}`, 0).service(t, nil).Report(t.Context(), final()),
		transport.Unavailable, "a failure in spite of its status")
}

// FuzzAnswer lets the service answer anything. What comes out is within the limits.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(offer("", "")))
	f.Add(400, []byte(`{"errorCode":400012,"message":"OUTDATED_AGENT_INFO","info":{"aduErrorCode":"x",`+
		`"aduErrorTarget":"y"}}`))
	f.Add(409, []byte(`{"errorCode":409000}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status == 401 {
			return // makes another session
		}
		p := answering(status, string(body), 0)
		s := p.service(t, nil)
		a, err := s.Check(t.Context(), query())
		if (a == nil) == (err == nil) || len(p.requests) > 2 {
			t.Fatalf("%+v, %v after %d requests", a, err, len(p.requests))
		}
		if failed := s.Report(t.Context(), final()); failed != nil && transport.Find(failed) == nil {
			t.Fatal(failed)
		}
		if err != nil {
			if transport.Find(err).Op != transport.OpCall {
				t.Fatal(err)
			}
			return
		}
		m := a.Memo
		if len(m.AgentInfoETag) > agent.MaxETag || len(m.ConfigETag) > agent.MaxETag || len(m.RootKeysURL) > agent.MaxURL {
			t.Fatalf("%+v", m)
		}
		if o := a.Offer; o != nil {
			var sent struct {
				UpdateMetadata struct{ UpdateManifest string }
			}
			if len(o.Manifest) == 0 || len(o.Manifest) > agent.MaxManifest || len(o.URLs) > agent.MaxFiles ||
				o.WorkflowID == "" || len(o.WorkflowID) > agent.MaxWorkflowID || o.Signature == "" {
				t.Fatalf("%+v", o)
			}
			if json.Unmarshal(body, &sent) != nil {
				t.Fatalf("an offer of %q", body)
			}
		}
	})
}
