package dpsupdate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// What a check does about a refusal, besides failing.
const (
	fails     = iota
	noService // no offer
	noETags   // it asks again without both etags
	noConfig  // it asks again without the configuration's
)

// refusals are the codes of the update service, with their usual status.
var refusals = []struct {
	code   string
	status int
	kind   transport.Kind
	check  int
	retry  bool
}{
	{"UPDATE_ACCOUNT_NOT_LINKED", 409, transport.NotFound, noService, false},
	{"OUTDATED_AGENT_INFO", 400, transport.Invalid, noETags, false},
	{"UNKNOWN_AGENT_INFO_VERSION", 400, transport.Invalid, noETags, false},
	{"OUTDATED_SERVICE_CONFIG", 400, transport.Invalid, noConfig, false},
	{"THROTTLED", 429, transport.Throttled, fails, true},
	{"TOO_MANY_REQUESTS", 429, transport.Throttled, fails, true},
	{"UPSTREAM_UNAVAILABLE", 503, transport.Unavailable, fails, true},
	{"INTERNAL_SERVER_ERROR", 500, transport.Unavailable, fails, true},
	{"REPORT_CONFLICT", 409, transport.Conflict, fails, false},
	{"INVALID_REQUEST", 400, transport.Invalid, fails, false},
	{"UNKNOWN_WORKFLOW_ID", 400, transport.NotFound, fails, false},
	{"UNSUPPORTED_API_VERSION", 400, transport.Unsupported, fails, false},
	{"UNSUPPORTED_AGENT_PROFILE", 400, transport.Unsupported, fails, false},
	{"INVALID_COMPATIBILITY_PROPERTIES", 400, transport.Invalid, fails, false},
}

// shapes are the forms in which a code comes.
var shapes = []struct {
	name string
	body string // CODE and NUMBER are replaced
	// status and number contradict the code, unless they are 0.
	status, number int
	header         bool
}{
	{"info", `{"errorCode":NUMBER,"message":"Some prose.","info":{"aduErrorCode":"CODE"}}`, 0, 0, false},
	{"message", `{"message":"CODE"}`, 0, 0, false},
	{"message and number", `{"errorCode":NUMBER,"message":"CODE","info":{}}`, 0, 0, false},
	{"another status", `{"errorCode":NUMBER,"info":{"aduErrorCode":"CODE"}}`, 404, 0, false},
	{"another status, retryable", `{"info":{"aduErrorCode":"CODE"}}`, 503, 0, false},
	{"another number", `{"errorCode":NUMBER,"message":"CODE"}`, 0, 404001, false},
	{"another number, retryable", `{"errorCode":NUMBER,"info":{"aduErrorCode":"CODE"}}`, 0, 503000, false},
	{"header", `{"errorCode":NUMBER,"message":"Some prose."}`, 0, 0, true},
}

func TestEveryCodeInEveryShape(t *testing.T) {
	for _, r := range refusals {
		for _, shape := range shapes {
			t.Run(r.code+"/"+shape.name, func(t *testing.T) {
				status, number := r.status, r.status*1000
				if shape.status != 0 {
					status = shape.status
				}
				if shape.number != 0 {
					number = shape.number
				}
				body := strings.NewReplacer("CODE", r.code, "NUMBER", fmt.Sprint(number)).Replace(shape.body)
				answer := provisioning.Answer{Status: status, Body: []byte(body), RetryAfter: 3 * time.Second}
				if shape.header {
					answer.ErrorCode = r.code
				}
				for _, onboarding := range []bool{false, true} {
					p, q := &peer{answers: []provisioning.Answer{answer}}, query()
					q.Onboarding = onboarding
					a, err := p.service(t, nil).Check(t.Context(), q)
					if r.check == noService {
						require.NoError(t, err)
						require.Equal(t, &agent.Answer{Memo: q.Memo, RetryAfter: 3 * time.Second}, a)
						require.Len(t, p.requests, 1)
						continue
					}
					requireRefusal(t, err, r.kind, r.code, r.retry, transport.ScopeOperation)
					requireRepeated(t, p, r.check)
				}
				p, scope := &peer{answers: []provisioning.Answer{answer}}, transport.ScopeOperation
				if r.check == noService {
					scope = transport.ScopeConnection // not about the report
				}
				requireRefusal(t, p.service(t, nil).Report(t.Context(), final()), r.kind, r.code, r.retry, scope)
				require.Len(t, p.requests, 1)
			})
		}
	}
}

func requireRefusal(t *testing.T, err error, kind transport.Kind, code string, retry bool, scope transport.Scope) {
	t.Helper()
	e := transport.Find(err)
	require.NotNil(t, e)
	require.Equal(t, kind, e.Kind)
	require.Equal(t, 3*time.Second, e.RetryAfter)
	require.Equal(t, transport.OpCall, e.Op)
	require.Equal(t, scope, e.Scope)
	require.Equal(t, retry, errfilter.Of(err).Retry)
	require.Equal(t, 1, strings.Count(err.Error(), code), err.Error())
}

// requireRepeated requires the second request of a check, if there is one.
func requireRepeated(t *testing.T, p *peer, check int) {
	t.Helper()
	first := string(p.requests[0].Body)
	require.Contains(t, first, etags)
	switch want := ""; check {
	case fails:
		require.Len(t, p.requests, 1)
	case noConfig:
		want = `,"agentInfoEtag":"aaa"`
		fallthrough
	default:
		require.Len(t, p.requests, 2)
		require.Equal(t, strings.Replace(first, etags, want, 1), string(p.requests[1].Body))
	}
}

// An unknown code counts for nothing: the number does, and without one the status.
func TestWithoutAKnownCodeNumberAndStatusCount(t *testing.T) {
	for _, row := range []struct {
		status int
		body   string
		check  transport.Kind // Unknown: a success
		report transport.Kind
		about  bool // the refusal of the report is about that
	}{
		{400, `{"errorCode":400002,"info":{"aduErrorCode":"FUTURE_CODE"}}`, transport.Invalid, transport.Invalid, true},
		{400, `{"errorCode":503000,"info":{"aduErrorCode":"NEW_CODE"}}`, transport.Unavailable, transport.Unavailable, true},
		{400, `{"errorCode":400012,"message":"One entry has no outcome."}`, transport.Invalid, transport.Invalid, true},
		{400, `{"errorCode":400004}`, transport.Invalid, transport.Invalid, true},
		{409, `{"errorCode":409000}`, transport.Unknown, transport.Conflict, true},
		{409, `{"errorCode":409001}`, transport.Conflict, transport.Conflict, true},
		{403, `{"errorCode":403001}`, transport.Forbidden, transport.Forbidden, true},
		{413, `{"errorCode":413000}`, transport.TooLarge, transport.TooLarge, true},
		{429, `{"errorCode":429001}`, transport.Throttled, transport.Throttled, true},
		{500, `{"errorCode":500001}`, transport.Unavailable, transport.Unavailable, true},
		{429, "", transport.Throttled, transport.Throttled, false},
		{502, "", transport.Unavailable, transport.Unavailable, false},
		{503, "", transport.Unavailable, transport.Unavailable, false},
		{504, "", transport.Timeout, transport.Timeout, false},
		{409, "", transport.Conflict, transport.Conflict, false},
		{404, "", transport.NotFound, transport.NotFound, false},
		{404, `{"errorCode":404201}`, transport.NotFound, transport.NotFound, false}, // the device is not enrolled
		{400, "<html>", transport.Invalid, transport.Invalid, false},
		{413, "<html>", transport.TooLarge, transport.TooLarge, true},
		{429, `{"errorCode":400012,"info":{"aduErrorCode":"INVALID_REQ`, transport.Throttled, transport.Throttled, false},
		{400, `{"errorCode":503000,"message":`, transport.Invalid, transport.Invalid, false},
	} {
		_, err := answering(row.status, row.body, 0).service(t, nil).Check(t.Context(), query())
		if row.check == transport.Unknown {
			require.NoError(t, err, row.body)
		} else {
			require.ErrorIs(t, err, row.check, row.body)
		}
		err = answering(row.status, row.body, 0).service(t, nil).Report(t.Context(), final())
		require.ErrorIs(t, err, row.report, row.body)
		require.Equal(t, row.about, transport.Find(err).Scope == transport.ScopeOperation, row.body)
	}
}

func TestAnOutdatedETagIsAskedAboutOnce(t *testing.T) {
	outdated := provisioning.Answer{Status: 400, Body: []byte(`{"errorCode":400004}`)}
	p := &peer{answers: []provisioning.Answer{outdated, {Status: 200, Body: []byte(offer("", ""))}}}
	a, err := p.service(t, nil).Check(t.Context(), query())
	require.NoError(t, err)
	require.Equal(t, "wf-9", a.Offer.WorkflowID)
	require.Equal(t, "a1", a.Memo.AgentInfoETag)
	requireRepeated(t, p, noETags)

	config := provisioning.Answer{Status: 400, Body: []byte(`{"message":"OUTDATED_SERVICE_CONFIG"}`)}
	p = &peer{answers: []provisioning.Answer{config, outdated, {Status: 200, Body: []byte("{}")}}}
	_, err = p.service(t, nil).Check(t.Context(), query())
	require.NoError(t, err)
	require.Len(t, p.requests, 3, "one etag after the other")

	p, q := &peer{answers: []provisioning.Answer{outdated}}, query()
	q.Memo = agent.Memo{}
	_, err = p.service(t, nil).Check(t.Context(), q)
	require.ErrorIs(t, err, transport.Invalid)
	require.Len(t, p.requests, 1, "there is no etag to leave out")
}

func TestARefusalNamesWhatItIsAbout(t *testing.T) {
	body := `{"errorCode":400012,"message":"INVALID_REQUEST","trackingId":"t-1","timestampUtc":"x",` +
		`"info":{"aduErrorCode":"INVALID_REQUEST","aduErrorTarget":"installResult.stepResults[1]"}}`
	err := answering(400, body, 0).service(t, nil).Report(t.Context(), final())
	require.EqualError(t, err, "call: invalid: provisioning service answered 400 (about installResult.stepResults[1]), "+
		"code 400012 INVALID_REQUEST (tracking id t-1)")
	for _, hostile := range []string{"<b>", strings.Repeat("A", 101), "a b"} {
		err := answering(400, `{"info":{"aduErrorCode":"`+hostile+`","aduErrorTarget":"`+hostile+`"}}`, 0).service(t, nil).
			Report(t.Context(), final())
		require.EqualError(t, err, "call: invalid: provisioning service answered 400")
	}
}
