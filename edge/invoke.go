package edge

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// Target is the module or device whose direct method is called. It belongs to the same edge device
// as the caller: a module of it, or a leaf device behind its gateway.
type Target struct {
	// DeviceID is the device of the module, or the leaf device. Empty: the caller's own device.
	DeviceID string
	// ModuleID is the module. Empty: the device itself.
	ModuleID string
}

// String returns the ids with a slash between them.
func (t Target) String() string {
	if t.ModuleID == "" {
		return t.DeviceID
	}
	return t.DeviceID + "/" + t.ModuleID
}

// path returns the path of the call at the gateway, as it is and percent-encoded.
func (t Target) path() (raw, encoded string) {
	raw = "/twins/" + t.DeviceID
	text := texts.AppendEscaped([]byte("/twins/"), t.DeviceID)
	if t.ModuleID != "" {
		raw += "/modules/" + t.ModuleID
		text = texts.AppendEscaped(append(text, "/modules/"...), t.ModuleID)
	}
	return raw + "/methods", string(text) + "/methods"
}

// Method is a call of a direct method.
type Method struct {
	// Name has 1 to 100 characters. The gateway refuses those that no hub allows: all but printable
	// ASCII, spaces, and $()<>@,;:\"/[]?={}.
	Name string
	// Payload is a JSON value of at most 128 KB. Empty: null.
	Payload []byte
	// ResponseTimeout is how long the gateway waits for the callee's answer, 5 s to 300 s. Fractions
	// of a second are rounded up. 0: 30 s.
	ResponseTimeout time.Duration
	// ConnectTimeout is how long the gateway waits for a callee that is not connected, up to 300 s.
	// Fractions of a second are rounded up. 0: not at all.
	ConnectTimeout time.Duration
}

// Result is the callee's answer.
type Result struct {
	// Status is the callee's own status: 200 is usual for success, and others are no error of Invoke.
	Status int
	// Payload is a JSON value, nil if there is none.
	Payload []byte
}

// Invoker calls direct methods of modules and leaf devices of the same edge device, over HTTPS at
// the gateway. It keeps up to four connections for later calls, for 30 s each. It is safe for
// concurrent use. Make it with NewInvoker, and close it.
//
// Source: HTTP API of edgeHub; the module clients of the official SDKs.
type Invoker struct {
	creds  *transport.Credentials
	opt    InvokerOptions
	agent  string
	clock  hubhttp.Clock
	tokens *hubhttp.Tokens
	conns  idleConns

	closing      context.Context // done when Close begins
	startClosing context.CancelFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // grows under mu while closed is false
}

// NewInvoker returns an Invoker for the module that creds name, for example Module.Credentials of
// FromEnvironment. Nil options mean all defaults; set Network, so that the gateway's certificate is
// verified. Both are copied. It dials nothing. The error is an *transport.Error of Kind Invalid.
func NewInvoker(creds *transport.Credentials, o *InvokerOptions) (*Invoker, error) {
	if creds == nil {
		return nil, invalidInvoker("credentials are nil; FromEnvironment returns them")
	}
	if err := creds.Validate(); err != nil {
		return nil, err
	}
	if creds.ModuleID == "" {
		return nil, invalidInvoker("credentials: ModuleID is empty, but only modules may call methods")
	}
	opt, err := o.resolve()
	if err != nil {
		return nil, err
	}
	own := *creds
	v := &Invoker{creds: &own, opt: opt, agent: dialer.Agent(opt.Network.ProductInfo)}
	v.closing, v.startClosing = context.WithCancel(context.Background())
	v.tokens = hubhttp.NewTokens(&own, &v.clock, opt.Margin)
	v.conns.dial = v.dial
	return v, nil
}

// dial opens a connection. A method's time-outs, which may be long, do not prolong it.
func (v *Invoker) dial(ctx context.Context) (*hubhttp.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, v.opt.Margin)
	defer cancel()
	return hubhttp.Dial(ctx, v.opt.dialer(), v.creds)
}

// Invoke calls a method and returns the callee's answer. It blocks until there is one, the call has
// failed for good, or ctx ended. A callee that answers with a status of 400 and more has answered:
// see Result.Status.
//
// A call is sent again only if the callee has certainly not received it:
//   - nothing of the request was sent: the gateway was not reached, its certificate did not verify
//     while a trust bundle may change, there was no token;
//   - the gateway, or a server on the way, refused it before the callee: 402, 403, 421, 423, 424,
//     425, 429, 511, and the hub's codes below 500000 of Kind Quota, Throttled or Unavailable, such
//     as "not online", unless they tell of a lost connection or a cancelled request;
//   - the gateway refused the token (401). Then the call is sent once more with another token.
//
// InvokerOptions.RetryPolicy decides about the first two. The status, the hub's code and the code's
// name may disagree. Then a call that may have run by one of them is not sent again. If the callee
// may have run the method, the error has transport.ErrOutcomeUnknown in its chain.
//
// The error is an *transport.Error:
//   - Invalid for a wrong Target or Method; TooLarge for a payload of more than 128 KB;
//   - NotFound when the callee is not connected to the gateway, after ConnectTimeout (404);
//   - Timeout when the callee did not answer within ResponseTimeout (504), or the gateway not
//     within both time-outs and InvokerOptions.Margin;
//   - Unauthorized when the gateway refuses the module, with another token as well (401): it takes
//     calls from modules of its own device only, and a hub takes calls from services only;
//   - Network when the connection was lost during the call;
//   - Protocol for an answer that is none of a gateway;
//   - Cancelled, with ctx's error and its cause in the chain; Closed after Close;
//   - RetryExpired when the policy ended the retries; the *retrypolicy.Error in its chain has the
//     reason and the last failure;
//   - Invalid, with the callback's name, when a callback panicked or ended its goroutine;
//   - otherwise a failure of the connection, as those of transport/http, or the Kind of another
//     status.
func (v *Invoker) Invoke(ctx context.Context, target Target, m Method) (Result, error) {
	c, err := v.newCall(target, m)
	if err != nil {
		return Result{}, err
	}
	if !v.enter() {
		return Result{}, c.failed(&transport.Error{Kind: transport.Closed, Op: transport.OpSend, Err: errInvokerClosed})
	}
	defer v.calls.Done()
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(v.closing, func() { cancel(errInvokerClosed) })()
	return c.run(own)
}

var errInvokerClosed = errors.New("Close was called")

func (v *Invoker) enter() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return false
	}
	v.calls.Add(1)
	return true
}

// Close ends running calls, waits for them, and closes all connections. Further calls fail with
// Closed. It may be called more than once and returns nil. A callback must not call it.
func (v *Invoker) Close() error {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.startClosing()
	v.calls.Wait()
	v.conns.close()
	return nil
}
