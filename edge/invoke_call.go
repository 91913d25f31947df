package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Limits of a call. Source: developer guide of Azure IoT Hub, direct methods.
const (
	maxMethodName    = 100
	maxMethodPayload = 128 << 10

	defaultResponseTimeout                 = 30 * time.Second
	minResponseTimeout, maxResponseTimeout = 5 * time.Second, 300 * time.Second
	maxConnectTimeout                      = 300 * time.Second
)

// methodVersion is the version of the API. edgeHub takes every one.
const methodVersion = "2021-04-12"

// methodCall is one call of Invoke.
type methodCall struct {
	invoker *Invoker
	target  Target
	name    string
	url     *url.URL
	body    []byte
	limit   time.Duration // of one attempt
	unknown bool          // the callee may have run an attempt; never reset
	damage  errfilter.Damage
}

// newCall checks the arguments of Invoke.
func (v *Invoker) newCall(target Target, m Method) (*methodCall, error) {
	if target.DeviceID == "" && target.ModuleID != "" {
		target.DeviceID = v.creds.DeviceID
	}
	c := &methodCall{invoker: v, target: target, name: m.Name}
	ids := transport.Credentials{Host: v.creds.Host, DeviceID: target.DeviceID, ModuleID: target.ModuleID}
	name := utf8.RuneCountInString(m.Name)
	response, connect := m.ResponseTimeout, m.ConnectTimeout
	if response == 0 {
		response = defaultResponseTimeout
	}
	switch {
	case target.DeviceID == "":
		return nil, c.invalid("Target is empty; give a ModuleID, or the DeviceID of a leaf device")
	case ids.Validate() != nil:
		return nil, c.invalid("Target " + strconv.Quote(clip(target.String())) + " has an id that no hub allows")
	case name == 0:
		return nil, c.invalid("Name is empty; give the method's name")
	case name > maxMethodName:
		c.name = clip(m.Name)
		return nil, c.invalid("Name has " + strconv.Itoa(name) + " characters; give " + strconv.Itoa(maxMethodName) +
			" at most")
	case !utf8.ValidString(m.Name):
		return nil, c.invalid("Name is not valid UTF-8")
	case len(m.Payload) > maxMethodPayload:
		return nil, c.failed(&transport.Error{Kind: transport.TooLarge, Op: transport.OpSend,
			Err: errors.New(texts.TooLarge(len(m.Payload), len(m.Payload), maxMethodPayload))})
	case len(m.Payload) > 0 && !(json.Valid(m.Payload) && utf8.Valid(m.Payload)):
		return nil, c.invalid("Payload is not one JSON value in UTF-8")
	case response < minResponseTimeout || response > maxResponseTimeout:
		return nil, c.invalid("ResponseTimeout is " + m.ResponseTimeout.String() + "; give " + minResponseTimeout.String() +
			" to " + maxResponseTimeout.String() + ", or 0 for " + defaultResponseTimeout.String())
	case connect < 0 || connect > maxConnectTimeout:
		return nil, c.invalid("ConnectTimeout is " + m.ConnectTimeout.String() + "; give 0 to " +
			maxConnectTimeout.String())
	}
	raw, encoded := target.path()
	c.url = &url.URL{Scheme: v.opt.dialer().Scheme(), Host: dialer.URLHost(v.creds.DialHost()), Path: raw,
		RawPath: encoded, RawQuery: "api-version=" + methodVersion}
	c.limit = response + connect + v.opt.Margin
	c.body = methodBody(m.Name, m.Payload, seconds(response), seconds(connect))
	return c, nil
}

// methodBody returns the body of the request. payload stays as it is.
func methodBody(name string, payload []byte, response, connect int) []byte {
	quoted, _ := json.Marshal(name) // a string, which cannot fail
	if payload = bytes.TrimSpace(payload); len(payload) == 0 {
		payload = []byte("null")
	}
	b := append([]byte(`{"methodName":`), quoted...)
	b = append(append(b, `,"payload":`...), payload...)
	b = strconv.AppendInt(append(b, `,"responseTimeoutInSeconds":`...), int64(response), 10)
	b = strconv.AppendInt(append(b, `,"connectTimeoutInSeconds":`...), int64(connect), 10)
	return append(b, '}')
}

// seconds rounds up.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// clip returns the beginning of a text that may be long.
func clip(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}

// run calls the method, with retries under the policy.
func (c *methodCall) run(ctx context.Context) (result Result, err error) {
	const policy = "InvokerOptions.RetryPolicy, InvokerOptions.Rand or Credentials.Now"
	calling, counted := policy, 0
	v := c.invoker
	safe := retrypolicy.SafeOnly{Policy: reconnect.RequestPolicy(v.opt.RetryPolicy)}
	r := retrypolicy.Retrier{Policy: safe, Timeout: -1, Rand: v.opt.Rand, Classify: judgeCall,
		OnRetry: func(n int, delay time.Duration, err error) {
			if n <= counted || v.opt.OnRetry == nil {
				return // called again for a try that a gate delays
			}
			counted = n
			calling = "InvokerOptions.OnRetry"
			v.opt.OnRetry(InvokeRetry{c.target, c.name, n, delay, err})
			calling = policy
		}}
	if failed := callback.Run(policy, func() {
		err = r.Do(ctx, func(ctx context.Context) (err error) {
			result, err = c.try(ctx)
			return c.damage.Judge(err)
		})
	}); failed != nil {
		if e, ok := failed.(*callback.Error); ok {
			failed = &callback.Error{Name: calling, Panic: e.Panic}
		}
		return Result{}, c.failed(&transport.Error{Kind: transport.Invalid, Op: transport.OpSend, Err: failed})
	}
	if err != nil {
		return Result{}, c.failed(reconnect.RequestEnded(ctx, err, errInvokerClosed))
	}
	return result, nil
}

// judgeCall is the classifier of retries: a failure is safe to repeat unless its outcome is
// unknown.
func judgeCall(err error) retrypolicy.Info {
	info := retrypolicy.Classify(err)
	info.Safe = retrypolicy.SafeYes
	if errors.Is(err, transport.ErrOutcomeUnknown) {
		info.Safe = retrypolicy.SafeNo
	}
	return info
}

var errSlowCall = errors.New("no answer within both time-outs and InvokerOptions.Margin")

// try makes one attempt. The error is ctx's if ctx ended.
func (c *methodCall) try(ctx context.Context) (result Result, err error) {
	attempt, cancel := context.WithTimeoutCause(ctx, c.limit, errSlowCall)
	defer cancel()
	err = c.invoker.tokens.Do(attempt, func(authorization string) (refusal *transport.Error, err error) {
		result, refusal, err = c.exchange(attempt, authorization)
		return refusal, err
	})
	e := transport.Find(err)
	switch {
	case err == nil:
		return result, nil
	case e == nil && ctx.Err() != nil:
		return Result{}, ctx.Err()
	case e == nil: // the attempt's own limit, while a token was made
		e = &transport.Error{Kind: transport.Timeout, Scope: transport.ScopeConnection, Op: transport.OpDial,
			Err: errSlowCall}
	}
	if c.unknown {
		e = operr.OutcomeUnknown(e)
	}
	return Result{}, e
}

// exchange makes one request. It sets unknown if the callee may have run the method though there is
// no result. A refusal may be sent again with another token, so one that sets unknown is an err.
func (c *methodCall) exchange(ctx context.Context, authorization string) (Result, *transport.Error, error) {
	v := c.invoker
	conn, err := v.conns.get(ctx)
	if err != nil {
		return Result{}, nil, c.lost(ctx, transport.OpDial, err)
	}
	header := http.Header{
		"Content-Type": {"application/json; charset=utf-8"}, "Accept": {"application/json"}, "User-Agent": {v.agent},
		"x-ms-edge-moduleId": {v.creds.DeviceID + "/" + v.creds.ModuleID},
	}
	if authorization != "" {
		header["Authorization"] = []string{authorization}
	}
	sent := time.Now()
	a, err := conn.Exchange(ctx, &hubhttp.Request{Method: http.MethodPost, URL: c.url, Header: header, Body: c.body})
	if err != nil {
		conn.Abort()
		conn.Close()
		c.unknown = c.unknown || conn.Sent()
		return Result{}, nil, c.lost(ctx, transport.OpSend, err)
	}
	v.conns.put(conn)
	v.clock.Learn(a.Header, a.TLS, sent, time.Now())
	if a.Status == http.StatusOK {
		result, err := readResult(a.Body)
		c.unknown = c.unknown || err != nil
		return result, nil, err
	}
	refusal, mayHaveRun := refusedCall(a, v.clock.Now())
	if mayHaveRun {
		c.unknown = true
		return Result{}, nil, refusal
	}
	return Result{}, refusal, nil
}

// lost returns the error of an attempt without an answer. It is ctx's if the caller's context
// ended.
func (c *methodCall) lost(ctx context.Context, op transport.Op, err error) error {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errSlowCall) {
		return ctx.Err()
	}
	var e *transport.Error
	if ctx.Err() != nil {
		e = &transport.Error{Kind: transport.Timeout, Scope: transport.ScopeConnection, Err: errSlowCall}
	} else if e = hubhttp.Protocol.Error(err); errors.Is(err, hubhttp.ErrLong) {
		e.Kind = transport.Protocol
	}
	e.Op = op
	return e
}

// failed returns the error of Invoke: e with the call's name.
func (c *methodCall) failed(e *transport.Error) *transport.Error {
	own := *e
	own.Proto, own.Err = hubhttp.Protocol.Name, &methodError{c.name, c.target, e.Err}
	if c.unknown {
		return operr.OutcomeUnknown(&own)
	}
	return &own
}

func (c *methodCall) invalid(text string) *transport.Error {
	return c.failed(&transport.Error{Kind: transport.Invalid, Op: transport.OpSend, Err: errors.New(text)})
}

// methodError names the call that failed.
type methodError struct {
	name   string
	target Target
	cause  error
}

func (e *methodError) Error() string {
	text := "method " + strconv.Quote(e.name) + " of " + clip(e.target.String())
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

func (e *methodError) Unwrap() error { return e.cause }
