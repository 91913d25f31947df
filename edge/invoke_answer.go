package edge

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// outcome says whether the callee may have run the method when the gateway, or a hub or a proxy,
// gave an answer other than 200. Its Kind is in package hubhttp.
type outcome struct {
	from, to   int // statuses, or codes of a hub
	mayHaveRun bool
	hint       string
}

// outcomes by status. The last matching row counts. Without a row nothing is certain: a success
// that is no result, a failure on the way (500, 502, 503). Source: RFC 9110 section 15, edgeHub.
var outcomes = [...]outcome{
	{300, 399, false, ""}, // a gateway does not redirect, so another server answered
	{400, 499, false, ""}, // refused before the callee got it
	{401, 401, false, "a gateway takes calls from modules of its own device only, a hub from services only"},
	{404, 404, false, "the callee does not exist or is not connected to the gateway; Method.ConnectTimeout waits for it"},
	{408, 408, true, ""},  // also the answer of a proxy whose gateway is slow
	{499, 499, true, ""},  // somebody gave up the call
	{501, 501, false, ""}, // these do not know the request at all
	{505, 505, false, ""},
	{511, 511, false, ""}, // a network that wants a login
	{504, 504, true, "the callee did not answer within Method.ResponseTimeout"},
}

// codeOutcomes are those of a hub's codes that differ from their status.
var codeOutcomes = [...]outcome{
	{400021, 400021, true, ""}, // RequestCanceled
	{400024, 400024, true, ""}, // RequestTimedOut
	{400027, 400027, true, ""}, // a connection was closed, and the callee's may be meant
	{400029, 400030, true, ""}, // likewise
	{404104, 404104, true, ""}, // DeviceConnectionClosedRemotely
}

// outcomeOf returns the outcome of a refusal. A proxy may have set the status, and a hub behind the
// gateway the code or its name, so they may disagree. Then the worse one counts: the callee has not
// run only if none of them leaves that open.
func outcomeOf(e *transport.StatusError) outcome {
	o := outcomeOfStatus(e.Status)
	for _, code := range [...]int{e.Code, hubhttp.CodeOf(e.Name)} {
		if code == 0 {
			continue
		}
		if of := outcomeOfCode(code); of.mayHaveRun || !o.mayHaveRun {
			o = of
		}
	}
	return o
}

func outcomeOfStatus(status int) outcome {
	o := outcome{mayHaveRun: true}
	for _, row := range outcomes {
		if row.from <= status && status <= row.to {
			o = row
		}
	}
	return o
}

// outcomeOfCode returns the outcome of a hub's code, which is that of its status without a row.
func outcomeOfCode(code int) outcome {
	for _, row := range codeOutcomes {
		if row.from <= code && code <= row.to {
			return row
		}
	}
	return outcomeOfStatus(code / 1000)
}

// refusedCall returns the error of an answer other than 200, and whether the callee may have run
// the method.
func refusedCall(a *hubhttp.Answer, now time.Time) (refusal *transport.Error, mayHaveRun bool) {
	e, v := hubhttp.ReadAnswer(a.Status, a.Header, a.Body)
	o := outcomeOf(e)
	if v != hubhttp.NoHub || a.Status < 400 { // the hint is about a gateway's answer
		e.Service, e.Hint = "gateway", o.hint
	}
	if a.Status/100 == 2 {
		e.Meaning = "an answer to a call has status 200"
	}
	after, _ := times.RetryAfterHeaders(a.Header.Get, now)
	return &transport.Error{Kind: v.Kind, Op: transport.OpSend, RetryAfter: after, Err: e}, o.mayHaveRun
}

// readResult reads the body of the answer to a call that has run.
func readResult(body []byte) (Result, error) {
	var r struct {
		Status  *int32          `json:"status"`
		Payload json.RawMessage `json:"payload"`
	}
	if json.Unmarshal(body, &r) != nil || r.Status == nil {
		return Result{}, &transport.Error{Kind: transport.Protocol, Op: transport.OpSend, Err: errNoResult}
	}
	return Result{Status: int(*r.Status), Payload: r.Payload}, nil
}

var errNoResult = errors.New("the gateway's answer is no JSON object with an integer \"status\"")
