package amqp_test

// The behaviour vectors of the official SDKs for AMQP: what each condition leads to, and
// multiplexed and renewed connections. Where Hubline differs from the Java SDK on purpose, the row
// says why.

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// vector is a condition or an event, and what it means.
type vector struct {
	what  string
	java  bool // the Java SDK tries again (AmqpsExceptionTranslator.java)
	kind  transport.Kind
	retry bool
	why   string // it is not as in Java
	// play causes an event that is not a condition, and returns the error.
	play func(t *testing.T, h *hub) error
}

var vectors = []vector{
	{what: "amqp:internal-error", java: true, kind: transport.Unavailable, retry: true},
	{what: "amqp:not-found", kind: transport.NotFound},
	{what: "amqp:unauthorized-access", kind: transport.Unauthorized},
	{what: "amqp:decode-error", kind: transport.Invalid},
	{what: "amqp:resource-limit-exceeded", kind: transport.Quota, retry: true,
		why: "a quota is refilled: nothing that is queued is thrown away because today's is used up"},
	{what: "amqp:not-allowed", kind: transport.Forbidden},
	{what: "amqp:invalid-field", kind: transport.Invalid},
	{what: "amqp:not-implemented", kind: transport.Unsupported},
	{what: "amqp:resource-locked", java: true, kind: transport.Unavailable, retry: true},
	{what: "amqp:precondition-failed", kind: transport.Conflict},
	{what: "amqp:resource-deleted", kind: transport.NotFound},
	{what: "amqp:illegal-state", kind: transport.Protocol},
	{what: "amqp:frame-size-too-small", kind: transport.Protocol},
	{what: "amqp:connection:forced", java: true, kind: transport.Unavailable, retry: true},
	{what: "amqp:connection:framing-error", java: true, kind: transport.Network, retry: true},
	{what: "amqp:connection:redirect", java: true, kind: transport.Unavailable, retry: true},
	{what: "amqp:session:window-violation", java: true, kind: transport.Network, retry: true},
	{what: "amqp:session:errant-link", java: true, kind: transport.Network, retry: true},
	{what: "amqp:session:handle-in-use", java: true, kind: transport.Network, retry: true},
	{what: "amqp:session:unattached-handle", java: true, kind: transport.Network, retry: true},
	{what: "amqp:link:detach-forced", java: true, kind: transport.Unavailable, retry: true},
	{what: "amqp:link:transfer-limit-exceeded", java: true, kind: transport.Unavailable, retry: true},
	{what: "amqp:link:message-size-exceeded", kind: transport.TooLarge},
	{what: "amqp:link:redirect", java: true, kind: transport.Unavailable, retry: true},
	{what: "amqp:link:stolen", java: true, kind: transport.Unavailable, retry: true},
	{what: "amqp:transaction:unknown-id", java: true, kind: transport.Unavailable, retry: true},
	{what: "amqp:transaction:rollback", java: true, kind: transport.Unavailable, retry: true},
	{what: "amqp:transaction:timeout", java: true, kind: transport.Timeout, retry: true},
	{what: "com.microsoft:device-container-throttled", java: true, kind: transport.Throttled, retry: true},
	{what: "com.microsoft:link-creation-conflict", java: true, kind: transport.Unavailable, retry: true},
	{what: "com.microsoft:timeout", java: true, kind: transport.Timeout, retry: true},
	{what: "com.microsoft:message-lock-lost", java: true, kind: transport.Conflict,
		why: "the lock is not to be had back; the hub delivers the command again"},
	{what: "com.microsoft:argument-error", java: true, kind: transport.Invalid,
		why: "the same argument would be wrong again"},
	{what: "com.microsoft:argument-out-of-range", java: true, kind: transport.Invalid,
		why: "the same argument would be wrong again"},
	{what: "com.microsoft:iot-hub-suspended", java: true, kind: transport.Forbidden,
		why: "a person has to look after the hub"},
	{what: "com.microsoft:iot-hub-not-found-error", java: true, kind: transport.NotFound,
		why: "a person has to look after the host name"},
	{what: "com.microsoft:device-already-exists", java: true, kind: transport.Conflict,
		why: "it will exist the next time, too"},
	{what: "com.microsoft:precondition-failed", java: true, kind: transport.Conflict,
		why: "the state must be read again first"},
	{what: "com.microsoft:quota-exceeded", java: true, kind: transport.Quota, retry: true},
	{what: "proton:io", java: true, kind: transport.Network, retry: true},
	{what: "any other condition", java: true, kind: transport.Unknown,
		why: "what is not understood may do harm when it is repeated; something that was granted and is ended so is tried " +
			"again"},

	{what: "no condition", java: true, kind: transport.Network, retry: true, play: func(t *testing.T, h *hub) error {
		r := h.dev1(t, h.options())
		r.requireSends("x")
		h.CloseAMQP("dev-1", testbroker.AMQPError{})
		return r.requireEnd(transport.Network)
	}},
	{what: "the socket fails", java: true, kind: transport.Network, retry: true, play: func(t *testing.T, h *hub) error {
		r := h.dev1(t, h.options())
		h.Drop("")
		return r.requireEnd(transport.Network)
	}},
	{what: "delivery accepted", java: true, retry: true, play: func(t *testing.T, h *hub) error {
		return h.dev1(t, h.options()).outcome("x", time.Second)
	}},
	// by its condition: above
	{what: "delivery rejected", java: false, kind: transport.Invalid, play: rejected("amqp:decode-error")},
	{what: "delivery released", java: true, kind: transport.Unavailable, retry: true, play: func(t *testing.T,
		h *hub) error {
		h.inject(testbroker.Fault{Kind: testbroker.ReleaseMessage})
		return h.dev1(t, h.options()).outcome("x", time.Second)
	}},
	{what: "delivery modified", kind: transport.Unavailable, retry: true,
		why: "Java ignores it, and the message has no result", play: func(t *testing.T, h *hub) error {
			h.inject(testbroker.Fault{Kind: testbroker.ModifyMessage})
			return h.dev1(t, h.options()).outcome("x", time.Second)
		}},
	{what: "delivery modified, undeliverable here", kind: transport.Forbidden, play: func(t *testing.T, h *hub) error {
		h.inject(testbroker.Fault{Kind: testbroker.ModifyMessage, UndeliverableHere: true})
		return h.dev1(t, h.options()).outcome("x", time.Second)
	}},
	{what: "the session for tokens is not opened in time", java: true, kind: transport.Timeout, retry: true,
		play: func(t *testing.T, h *hub) error {
			h.inject(testbroker.Fault{Kind: testbroker.NoAttach, Link: testbroker.LinkCBSReceiver})
			_, err := tryStart(t, amqp.New(h.options()), h.CredsWith(t, ""))
			return err
		}},
	{what: "the device's session is not opened in time", java: true, kind: transport.Timeout, retry: true,
		play: func(t *testing.T, h *hub) error {
			h.inject(testbroker.Fault{Kind: testbroker.NoAttach, Link: testbroker.LinkTelemetry})
			r := h.dev1(t, h.options())
			r.send(0, "x")
			return r.requireEnd(transport.Timeout)
		}},
	{what: "sent while the session is being opened again", java: true, retry: true, play: func(t *testing.T,
		h *hub) error {
		r := h.dev1(t, h.options())
		r.requireSends("x")
		h.inject(testbroker.Fault{Kind: testbroker.SlowAttach, Link: testbroker.LinkTelemetry, Delay: 5 * time.Second})
		h.EndSessions("dev-1", testbroker.AMQPError{Condition: "amqp:session:errant-link"})
		synctest.Wait()
		return r.outcome("it waits", 10*time.Second)
	}},
	{what: "the device has left the connection", kind: transport.Closed, play: func(t *testing.T, h *hub) error {
		mux := amqp.NewMux(h.options())
		start(t, mux, h.device(t, "stays"))
		c, err := device.New(h.CredsWith(t, ""), mux, nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Close())
		return c.Send(t.Context(), &transport.Message{})
	}},
	{what: "not all bytes go out", kind: transport.Timeout, retry: true,
		why: "the connection is dead, and the message goes again over another", play: func(t *testing.T, h *hub) error {
			o := h.options()
			o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := h.Dial(testbroker.PortAMQP)(ctx, network, addr)
				return &stuck{Conn: c, closed: make(chan struct{})}, err
			}
			r := h.dev1(t, o)
			r.send(0, "x", string(make([]byte, 50_000)))
			return r.requireEnd(transport.Timeout)
		}},
	{what: "no settings for TLS", kind: transport.Invalid, play: func(t *testing.T, h *hub) error {
		_, err := tryStart(t, amqp.New(&amqp.Options{Network: netopt.Options{Plaintext: true, Certificate: noCertificate}}),
			h.CredsWith(t,
				""))
		return err
	}},
	{what: "a token is answered with another status than 200", java: true, kind: transport.Unavailable, retry: true,
		play: func(t *testing.T, h *hub) error {
			// by its status: TestTokensAreRefused
			h.inject(testbroker.Fault{Kind: testbroker.RefuseToken, Status: 500})
			_, err := tryStart(t, amqp.New(h.options()), h.CredsWith(t, ""))
			return err
		}},
}

// published are all that the official SDKs have a class, a code or a row for, in the order of
// AmqpsExceptionTranslator.java (Java), AmqpIotErrorAdapter.cs (C#) and amqp_common_errors.ts
// (Node), followed by those that the Java transport throws itself. A crash of its reactor has no
// counterpart here.
const published = `
amqp:internal-error
amqp:not-found
amqp:unauthorized-access
amqp:decode-error
amqp:resource-limit-exceeded
amqp:not-allowed
amqp:invalid-field
amqp:not-implemented
amqp:resource-locked
amqp:precondition-failed
amqp:resource-deleted
amqp:illegal-state
amqp:frame-size-too-small
amqp:connection:forced
amqp:connection:framing-error
amqp:connection:redirect
amqp:session:window-violation
amqp:session:errant-link
amqp:session:handle-in-use
amqp:session:unattached-handle
amqp:link:detach-forced
amqp:link:transfer-limit-exceeded
amqp:link:message-size-exceeded
amqp:link:redirect
amqp:link:stolen
amqp:transaction:unknown-id
amqp:transaction:rollback
amqp:transaction:timeout
com.microsoft:device-container-throttled
com.microsoft:link-creation-conflict
com.microsoft:timeout
com.microsoft:message-lock-lost
com.microsoft:argument-error
com.microsoft:argument-out-of-range
com.microsoft:iot-hub-suspended
com.microsoft:iot-hub-not-found-error
com.microsoft:device-already-exists
com.microsoft:precondition-failed
com.microsoft:quota-exceeded
proton:io
any other condition
no condition
the socket fails
delivery accepted
delivery rejected
delivery released
delivery modified
delivery modified, undeliverable here
the session for tokens is not opened in time
the device's session is not opened in time
sent while the session is being opened again
the device has left the connection
not all bytes go out
no settings for TLS
a token is answered with another status than 200`

func TestVectorsAreComplete(t *testing.T) {
	var have []string
	for _, v := range vectors {
		have = append(have, v.what)
		require.Equal(t, v.java != v.retry, v.why != "", "%s: a difference has a reason, and only that", v.what)
	}
	require.Equal(t, strings.Split(strings.TrimSpace(published), "\n"), have)
}

// A hub sends each condition wherever it can: for a message, a link, a session, a connection, a
// dial.
func TestVectors(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.what, func(t *testing.T) {
			if v.play != nil {
				bubble(t, func(t *testing.T, h *hub) { v.require(t, v.play(t, h), v.kind) })
				return
			}
			condition := v.what
			if condition == "any other condition" {
				condition = "com.example:odd"
			}
			require.Equal(t, v.retry, errfilter.OfKind(v.kind).Retry)
			ended := v.kind // of something that had been granted
			if ended == transport.Unknown {
				ended = transport.Network
			}
			for name, level := range map[string]struct {
				kind transport.Kind
				play func(t *testing.T, h *hub) error
			}{
				"message": {v.kind, rejected(condition)},
				"link":    {lostUnderWay(condition, ended), endsMessage(testbroker.DetachOnMessage, condition)},
				"session": {lostUnderWay(condition, ended), endsMessage(testbroker.EndOnMessage, condition)},
				"connection": {ended, func(t *testing.T, h *hub) error {
					h.inject(testbroker.Fault{Kind: testbroker.CloseOnMessage, Condition: condition})
					r := h.dev1(t, h.options())
					r.send(0, "x")
					return r.requireEnd(ended)
				}},
				"dial": {ended, func(t *testing.T, h *hub) error {
					h.inject(testbroker.Fault{Kind: testbroker.RefuseConnect, Condition: condition})
					_, err := tryStart(t, amqp.New(h.options()), h.CredsWith(t, ""))
					return err
				}},
				"links for commands": {ended, func(t *testing.T, h *hub) error {
					h.inject(testbroker.Fault{Kind: testbroker.RefuseAttach, Link: testbroker.LinkC2D, Condition: condition})
					return h.dev1(t, h.options()).ask(&transport.Request{ID: 1, Op: transport.OpSubscribe,
						Want: transport.Messages}).Err
				}},
			} {
				t.Run(name, func(t *testing.T) {
					bubble(t, func(t *testing.T, h *hub) {
						err := level.play(t, h)
						v.require(t, err, level.kind)
						said, ok := errors.AsType[*amqp.ConditionError](err)
						require.True(t, ok)
						require.Equal(t, condition, said.Condition)
					})
				})
			}
		})
	}
}

// require checks the Kind of an error, and the decision of the filter.
func (v *vector) require(t *testing.T, err error, kind transport.Kind) {
	t.Helper()
	if v.play != nil && kind == transport.Unknown {
		require.NoError(t, err)
		return
	}
	require.Error(t, err)
	require.Equal(t, kind, transport.KindOf(err), "%v", err)
	if kind == v.kind {
		require.Equal(t, v.retry, errfilter.Retryable(err), "%v", err)
	}
}

// lostUnderWay is the Kind of a message that was in flight when its link was lost for a reason of
// this Kind. It is sent again, unless the reason is about its content. When the reason is about the
// device or the hub, the session ends instead.
func lostUnderWay(condition string, k transport.Kind) transport.Kind {
	switch k {
	case transport.Network, transport.Conflict, transport.Protocol, transport.Unsupported:
		return transport.Unavailable
	case transport.Forbidden:
		if condition == "amqp:not-allowed" {
			return transport.Unavailable
		}
	}
	return k
}

// rejected has the hub reject a message. A reason about the device ends the session instead.
func rejected(condition string) func(t *testing.T, h *hub) error {
	return endsMessage(testbroker.RejectMessage, condition)
}

// endsMessage sends a message that meets a fault, and returns its result or that of the session.
func endsMessage(kind testbroker.FaultKind, condition string) func(t *testing.T, h *hub) error {
	return func(t *testing.T, h *hub) error {
		h.inject(testbroker.Fault{Kind: kind, Condition: condition})
		r := h.dev1(t, h.options())
		r.send(0, "x")
		for range 100 {
			if all := r.sink.results(); len(all) > 0 {
				require.Len(t, all, 1)
				r.requireAlive()
				return all[0].err
			}
			select {
			case <-r.over:
				return r.err
			case <-time.After(10 * time.Millisecond):
			}
		}
		return errors.New("nothing happened")
	}
}

// stuck accepts the first bytes, for the handshake, and no more.
type stuck struct {
	net.Conn
	closed chan struct{}

	mu       sync.Mutex
	written  int
	deadline time.Time
}

func (c *stuck) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.written += len(p)
	full, limit := c.written > 10_000, time.Until(c.deadline)
	c.mu.Unlock()
	if !full {
		return c.Conn.Write(p)
	}
	select {
	case <-time.After(limit):
		return 0, os.ErrDeadlineExceeded
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *stuck) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return nil
}

func (c *stuck) Close() error {
	close(c.closed) // the stream closes it once
	return c.Conn.Close()
}

func noCertificate(context.Context) (*tls.Certificate, error) { return nil, nil }

// gateway is clients on one connection that receive messages.
type gateway struct {
	all []*device.Client

	mu       sync.Mutex
	got      []int   // commands
	desired  []int64 // the version that was told last
	failures []error
}

func newGateway(t *testing.T, h *hub, n int, tokenLife time.Duration) *gateway {
	mux := amqp.NewMux(h.options())
	g := &gateway{got: make([]int, n), desired: make([]int64, n)}
	for i := range n {
		creds := h.device(t, fmt.Sprintf("fleet-%d", i))
		creds.TokenLife = tokenLife
		c, err := device.New(creds, mux, &device.Options{
			StableTime: time.Second,
			OnStatus: func(s device.Status) {
				g.mu.Lock()
				defer g.mu.Unlock()
				if s.Err != nil {
					g.failures = append(g.failures, s.Err)
				}
			},
		})
		require.NoError(t, err)
		c.HandleMessages(func(context.Context, *transport.Message) error {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.got[i]++
			return nil
		})
		t.Cleanup(func() { _ = c.Close() })
		c.HandleDesired(func(_ context.Context, d device.Desired) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.desired[i] = d.Version
		})
		require.NoError(t, c.HandleMethod("who",
			func(_ context.Context, m *device.MethodCall) (int, []byte) { return 200 + i, m.Body }))
		g.all = append(g.all, c)
	}
	each(g.all, func(_ int, c *device.Client) {
		if err := c.Open(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return g
}

// requireBothWays checks that a message of each device arrives, and a message to each.
func (g *gateway) requireBothWays(t *testing.T, h *hub, round int) {
	t.Helper()
	each(g.all, func(i int, c *device.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := c.Send(ctx, numbered(round)); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		id := fmt.Sprintf("fleet-%d", i)
		if err := h.SendC2D(id, testbroker.C2D{MessageID: fmt.Sprint(round)}); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		if err := h.WaitC2D(ctx, id, testbroker.Completed, round+1); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.got[i] < round+1 {
			t.Errorf("%d: %d of %d commands", i, g.got[i], round+1)
		}
	})
}

// requireCalls checks for each device that its twin is patched and read, that a change of its
// desired properties arrives, and that its method answers.
func (g *gateway) requireCalls(t *testing.T, h *hub, round int) {
	t.Helper()
	each(g.all, func(i int, c *device.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		id, body := fmt.Sprintf("fleet-%d", i), fmt.Sprintf(`{"round":%d}`, round)
		if _, err := c.PatchReported(ctx, []byte(body)); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		if twin, err := c.GetTwin(ctx); err != nil || !strings.Contains(string(twin.Reported), body[1:len(body)-1]) {
			t.Errorf("%d: %v, %+v", i, err, twin)
		}
		// A link gets its credit a moment after it is attached.
		r, err := h.CallMethod(ctx, id, testbroker.MethodCall{Name: "who", Payload: []byte(body), ConnectTimeout: time.Second,
			ResponseTimeout: 5 * time.Second})
		if err != nil || r.Status != 200+i || string(r.Payload) != body {
			t.Errorf("%d: %v, %+v", i, err, r)
		}
		version, err := h.Hub.PatchDesired(id, body)
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
		time.Sleep(time.Second)
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.desired[i] != version {
			t.Errorf("%d: version %d is desired, and %d was told", i, version, g.desired[i])
		}
	})
}

// The sessions of a shared connection are dropped one by one, all at once, and with the connection:
// all come back, with their subscriptions.
func TestSessionsOfAMuxComeBack(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		const n = 8
		g := newGateway(t, h, n, 0)
		round := 0
		check := func(dials int32) {
			t.Helper()
			g.requireBothWays(t, h, round)
			g.requireCalls(t, h, round)
			require.Equal(t, dials, h.dials.Load())
			round++
			time.Sleep(time.Minute)
		}
		check(1)
		for i := range g.all {
			require.Equal(t, 1, h.EndSessions(fmt.Sprintf("fleet-%d", i),
				testbroker.AMQPError{Condition: "amqp:session:errant-link"}))
			check(1)
		}
		require.Equal(t, n, h.EndSessions("", testbroker.AMQPError{Condition: "amqp:session:errant-link"}))
		check(1)
		h.Drop("")
		check(2)
		h.CloseAMQP("", testbroker.AMQPError{Condition: "amqp:connection:forced"})
		check(3)
		for i, c := range g.all {
			require.LessOrEqual(t, c.Stats().Connections, uint64(3), "%d: what concerned a session was mended there", i)
			require.NoError(t, c.Close())
		}
	})
}

// A device with bad credentials, before and after the others connect, and one that is disabled, get
// errors of their own, and the others are not disturbed. Java reports them together, in a map from
// device to cause.
func TestBadCredentialsOnAMux(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		mux := amqp.NewMux(h.options())
		opened := func(creds *transport.Credentials) (*device.Client, error) {
			c, err := device.New(creds, mux, nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			return c, c.Open(t.Context())
		}
		wrong := h.CredsWith(t, hubfixture.WrongKey)
		_, err := opened(wrong)
		require.ErrorIs(t, err, transport.Unauthorized, "alone, and first")
		synctest.Wait()
		require.Zero(t, h.Connections(""), "nobody needs the connection")

		good := fleet(t, h, mux, 3)
		t.Cleanup(func() { each(good, func(_ int, c *device.Client) { _ = c.Close() }) })
		before := h.dials.Load()
		bad, err := opened(wrong)
		require.ErrorIs(t, err, transport.Unauthorized, "among others")
		refusal, ok := errors.AsType[*amqp.TokenError](err)
		require.True(t, ok)
		require.Equal(t, 401, refusal.Status)
		require.Equal(t, device.NotRetryable, bad.Status().Reason)
		require.Equal(t, uint64(1), bad.Stats().Attempts)

		nobody := *wrong
		nobody.DeviceID = "nobody"
		_, err = opened(&nobody)
		require.ErrorIs(t, err, transport.NotFound)

		off := h.device(t, "off")
		require.NoError(t, h.SetEnabled("off", false))
		c, err := opened(off)
		require.ErrorIs(t, err, transport.Unauthorized, "disabled before")
		require.NoError(t, h.SetEnabled("off", true))
		require.NoError(t, c.Open(t.Context()), "and open again when it is enabled")
		require.NoError(t, c.Send(t.Context(), numbered(0)))
		require.NoError(t, h.SetEnabled("off", false))
		require.ErrorIs(t, c.Send(t.Context(), numbered(1)), transport.Unauthorized, "disabled after")
		require.Equal(t, device.NotRetryable, c.Status().Reason)
		require.ErrorIs(t, c.Status().Err, transport.Unauthorized)

		each(good, func(_ int, c *device.Client) {
			if err := c.Send(t.Context(), numbered(0)); err != nil {
				t.Error(err)
			}
		})
		for i, c := range good {
			require.EqualValues(t, 1, c.Stats().Connections)
			requireAll(t, h, fmt.Sprintf("fleet-%d", i), 1)
			require.NoError(t, c.Close())
		}
		require.Equal(t, before, h.dials.Load(), "one connection for all that")
	})
}

// Tokens that live for ten minutes, on all devices of a connection, for hours: telemetry, messages,
// twin and methods work after each renewal in place, without a failure.
func TestTokenRenewalOnAMux(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		g := newGateway(t, h, 8, 10*time.Minute)
		const rounds = 30
		for round := range rounds {
			g.requireBothWays(t, h, round)
			g.requireCalls(t, h, round)
			time.Sleep(7 * time.Minute)
		}
		require.Empty(t, g.failures)
		require.EqualValues(t, 1, h.dials.Load(), "renewed in place")
		for i, c := range g.all {
			requireAll(t, h, fmt.Sprintf("fleet-%d", i), rounds)
			require.NoError(t, c.Close())
		}
	})
}

// A bad or disabled device neither spins nor disturbs the others: it backs off by its own policy,
// and costs the connection a few tokens at most.
func TestABadDeviceNeitherSpinsNorDisturbsOthers(t *testing.T) {
	for name, bad := range map[string]struct {
		fault testbroker.Fault
		most  uint64 // attempts in 10 minutes
	}{
		"refused for good": {testbroker.Fault{Kind: testbroker.RefuseToken, Status: 401}, 1},
		"refused for now":  {testbroker.Fault{Kind: testbroker.RefuseToken, Status: 503}, 90},
		"throttled":        {testbroker.Fault{Kind: testbroker.RefuseToken, Status: 429}, 30},
		"unanswered":       {testbroker.Fault{Kind: testbroker.NoToken}, 40},
		"link refused":     {testbroker.Fault{Kind: testbroker.RefuseAttach, Link: testbroker.LinkC2D}, 90},
		"link lost at once": {testbroker.Fault{Kind: testbroker.DetachWhileIdle, Link: testbroker.LinkC2D,
			Delay: time.Millisecond}, 90},
		// mended in place
		"link lost every 6 s": {testbroker.Fault{Kind: testbroker.DetachWhileIdle, Link: testbroker.LinkC2D,
			Delay: 6 * time.Second}, 1},
		"messages refused":      {testbroker.Fault{Kind: testbroker.ReleaseMessage}, 1},
		"links lost by sending": {testbroker.Fault{Kind: testbroker.DetachOnMessage}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				mux := amqp.NewMux(h.options())
				good := fleet(t, h, mux, 4)
				t.Cleanup(func() { each(good, func(_ int, c *device.Client) { _ = c.Close() }) })
				bad.fault.Device, bad.fault.Times = "dev-1", -1
				in := h.inject(bad.fault)
				creds := h.CredsWith(t, "")
				c, err := device.New(creds, mux, &device.Options{
					RetryPolicy: retrypolicy.ExponentialBackoffWithJitter{},
				})
				require.NoError(t, err)
				c.HandleMessages(func(context.Context, *transport.Message) error { return nil })
				defer c.Close()
				require.NoError(t, c.Start())
				for i := range 20 {
					require.NoError(t, c.Enqueue(t.Context(), numbered(i), nil))
				}
				goroutines := 0
				for minute := range 10 {
					each(good, func(i int, c *device.Client) {
						began := time.Now()
						if err := c.Send(t.Context(), numbered(minute)); err != nil {
							t.Error(err)
						}
						if took := time.Since(began); took > 100*time.Millisecond {
							t.Errorf("a good device waited %v", took)
						}
					})
					time.Sleep(time.Minute)
					if n := runtime.NumGoroutine(); minute == 1 {
						goroutines = n
					} else if minute > 1 {
						require.Less(t, n, goroutines+20, "they do not grow")
					}
				}
				require.NotZero(t, in.Fired())
				require.LessOrEqual(t, c.Stats().Attempts, bad.most)
				require.Less(t, in.Fired(), 700, "it does not spin")
				for i, c := range good {
					require.EqualValues(t, 1, c.Stats().Connections)
					requireAll(t, h, fmt.Sprintf("fleet-%d", i), 10)
				}
				in.Remove()
				require.NoError(t, c.Open(t.Context()))
				require.NoError(t, c.Flush(t.Context()))
				requireAll(t, h, "dev-1", 20)
				require.EqualValues(t, 1, h.dials.Load())
				for _, c := range append(good, c) {
					require.NoError(t, c.Close())
				}
			})
		})
	}
}
