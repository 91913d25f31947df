package amqp_test

// The behaviour vectors of the official SDKs for AMQP: the effect of each condition, and
// multiplexed and renewed connections. Where Hubline deliberately differs from the Java SDK, the
// row says why.

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// vector is a condition or an event, and its effect. The conditions are all for which the official
// SDKs have a class, a code or a row, in the order of AmqpsExceptionTranslator.java (Java),
// AmqpIotErrorAdapter.cs (C#) and amqp_common_errors.ts (Node), followed by those that the Java
// transport throws itself. A crash of its reactor has no counterpart here.
type vector struct {
	what  string
	java  bool // the Java SDK retries (AmqpsExceptionTranslator.java)
	kind  transport.Kind
	retry bool
	why   string // why it differs from Java
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
		h.CloseAMQP("dev-1", hubdata.AMQPError{})
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
	// by its condition, in the rows above
	{what: "delivery rejected", java: false, kind: transport.Invalid, play: rejected("amqp:decode-error")},
	{what: "delivery released", java: true, kind: transport.Unavailable, retry: true, play: func(t *testing.T,
		h *hub) error {
		h.inject(fault.Fault{Kind: fault.ReleaseMessage})
		return h.dev1(t, h.options()).outcome("x", time.Second)
	}},
	{what: "delivery modified", kind: transport.Unavailable, retry: true,
		why: "Java ignores it, and the message has no result", play: func(t *testing.T, h *hub) error {
			h.inject(fault.Fault{Kind: fault.ModifyMessage})
			return h.dev1(t, h.options()).outcome("x", time.Second)
		}},
	{what: "delivery modified, undeliverable here", kind: transport.Forbidden, play: func(t *testing.T, h *hub) error {
		h.inject(fault.Fault{Kind: fault.ModifyMessage, UndeliverableHere: true})
		return h.dev1(t, h.options()).outcome("x", time.Second)
	}},
	{what: "the session for tokens is not opened in time", java: true, kind: transport.Timeout, retry: true,
		play: func(t *testing.T, h *hub) error {
			h.inject(fault.Fault{Kind: fault.SwallowAttach, Link: fault.LinkCBSReceiver})
			_, err := tryStart(t, amqp.New(h.options()), h.CredsWith(t, ""))
			return err
		}},
	{what: "the device's session is not opened in time", java: true, kind: transport.Timeout, retry: true,
		play: func(t *testing.T, h *hub) error {
			h.inject(fault.Fault{Kind: fault.SwallowAttach, Link: fault.LinkTelemetry})
			r := h.dev1(t, h.options())
			r.send(0, "x")
			return r.requireEnd(transport.Timeout)
		}},
	{what: "sent while the session is being opened again", java: true, retry: true, play: func(t *testing.T,
		h *hub) error {
		r := h.dev1(t, h.options())
		r.requireSends("x")
		h.inject(fault.Fault{Kind: fault.SlowAttach, Link: fault.LinkTelemetry, Delay: 5 * time.Second})
		h.EndSessions("dev-1", hubdata.AMQPError{Condition: "amqp:session:errant-link"})
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
			// by its status; see TestTokensAreRefused
			h.inject(fault.Fault{Kind: fault.RefuseToken, Status: 500})
			_, err := tryStart(t, amqp.New(h.options()), h.CredsWith(t, ""))
			return err
		}},
}

// A hub sends each condition in every possible place: for a message, a link, a session, a
// connection, a dial.
func TestVectors(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.what, func(t *testing.T) {
			require.Equal(t, v.java != v.retry, v.why != "", "a difference has a reason, and only that")
			if v.play != nil {
				bubble(t, func(t *testing.T, h *hub) { v.require(t, v.play(t, h), v.kind) })
				return
			}
			condition := v.what
			if condition == "any other condition" {
				condition = "com.example:odd"
			}
			require.Equal(t, v.retry, errfilter.OfKind(v.kind).Retry)
			ended := v.kind // for the end of a granted link or session
			if ended == transport.Unknown {
				ended = transport.Network
			}
			for name, level := range map[string]struct {
				kind transport.Kind
				play func(t *testing.T, h *hub) error
			}{
				"message": {v.kind, rejected(condition)},
				"link":    {lostUnderWay(condition, ended), endsMessage(fault.DetachOnMessage, condition)},
				"session": {lostUnderWay(condition, ended), endsMessage(fault.EndOnMessage, condition)},
				"connection": {ended, func(t *testing.T, h *hub) error {
					h.inject(fault.Fault{Kind: fault.CloseOnMessage, Condition: condition})
					r := h.dev1(t, h.options())
					r.send(0, "x")
					return r.requireEnd(ended)
				}},
				"dial": {ended, func(t *testing.T, h *hub) error {
					h.inject(fault.Fault{Kind: fault.RefuseConnect, Condition: condition})
					_, err := tryStart(t, amqp.New(h.options()), h.CredsWith(t, ""))
					return err
				}},
				"links for commands": {ended, func(t *testing.T, h *hub) error {
					h.inject(fault.Fault{Kind: fault.RefuseAttach, Link: fault.LinkC2D, Condition: condition})
					return h.dev1(t, h.options()).ask(&transport.Request{ID: 1, Op: transport.OpSubscribe,
						Want: transport.FeatureMessages}).Err
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

// lostUnderWay returns the Kind of a message that was in flight when its link was lost for a reason
// of Kind k. It is sent again, unless the reason is about its content. When the reason is about the
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

// rejected makes the hub reject a message. A reason about the device ends the session instead.
func rejected(condition string) func(t *testing.T, h *hub) error {
	return endsMessage(fault.RejectMessage, condition)
}

// endsMessage sends a message with a fault in force, and returns its result or that of the session.
func endsMessage(kind fault.Kind, condition string) func(t *testing.T, h *hub) error {
	return func(t *testing.T, h *hub) error {
		h.inject(fault.Fault{Kind: kind, Condition: condition})
		r := h.dev1(t, h.options())
		r.send(0, "x")
		for range 100 {
			if all := r.sink.AllResults(); len(all) > 0 {
				require.Len(t, all, 1)
				if e := transport.Find(all[0].Err); e != nil {
					require.Equal(t, transport.ScopeOperation, e.Scope)
					require.Equal(t, transport.OpSend, e.Op)
				}
				r.requireAlive()
				r.requireSends("after")
				require.EqualValues(t, 1, h.dials.Load())
				return all[0].Err
			}
			select {
			case <-r.over:
				require.Empty(t, r.sink.AllResults(), "no message fails for a condition about its device")
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
