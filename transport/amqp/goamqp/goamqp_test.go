package goamqp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/amqp/goamqp"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/transporttest"
)

// options returns options that reach the hub without TLS.
func options(h *hubfixture.Broker) *amqp.Options {
	return &amqp.Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortAMQP)}}
}

func TestConformance(t *testing.T) {
	for _, way := range []struct {
		name   string
		module bool
		opt    func(h *hubfixture.Broker) *amqp.Options
	}{
		{"plain", false, options},
		{"TLS", false, func(h *hubfixture.Broker) *amqp.Options {
			return &amqp.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortAMQPS), TLS: h.ClientTLS()}}
		}},
		{"module", true, options},
		{"SASL PLAIN", false, func(h *hubfixture.Broker) *amqp.Options {
			o := options(h)
			o.Auth = amqp.AuthPlain
			return o
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				h := hubfixture.New(t)
				if way.module {
					h.BecomeModule(t)
				}
				p := h.Pair(t, goamqp.New(way.opt(h)))
				p.MarksResent, p.NoOrder = false, true
				p.HubMarks = append(p.HubMarks, "hubline/testbroker/")
				return p
			})
		})
	}
}

// bubble runs f with a client of dev-1 that is connected.
func bubble(t *testing.T, f func(t *testing.T, h *hubfixture.Broker, c *device.Client)) {
	t.Helper()
	testkit.In2030(t, func(t *testing.T) {
		h := hubfixture.New(t)
		c, err := device.New(h.CredsWith(t, ""), goamqp.New(options(h)), nil)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Open(t.Context()))
		f(t, h, c)
	})
}

// A lost link costs the connection, and no message.
func TestALostLinkIsALostConnection(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubfixture.Broker, c *device.Client) {
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("a")}))
		require.Equal(t, 1, h.DetachLinks("dev-1", fault.LinkTelemetry, hubdata.AMQPError{}))
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("b")}))
		require.EqualValues(t, 2, c.Stats().Connections)
	})
}

// A token is renewed on the open connection, and a rejected message fails alone.
func TestTokensAreRenewedAndMessagesRejected(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubfixture.Broker, c *device.Client) {
		h.Inject(fault.Fault{Kind: fault.RejectMessage, Condition: "amqp:not-allowed"})
		err := c.Send(t.Context(), &transport.Message{Body: []byte("a")})
		require.ErrorIs(t, err, transport.Forbidden)
		time.Sleep(3 * time.Hour)
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("b")}))
		require.EqualValues(t, 1, c.Stats().Connections)
	})
}

// running starts a session of dev-1, which ends with cancel.
func running(t *testing.T, h *hubfixture.Broker) (s transport.Session, sink *hubfixture.Sink, ran <-chan error) {
	t.Helper()
	sink = new(hubfixture.Sink)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := goamqp.New(options(h)).Dial(ctx, &transport.Config{Creds: h.CredsWith(t, ""), Window: 64, Queue: 8,
		Sink: sink})
	require.NoError(t, err)
	return s, sink, sink.Run(t, ctx, s, cancel)
}

// send sends 64 messages.
func send(s transport.Session) {
	var bodies []string
	for i := range 64 {
		bodies = append(bodies, fmt.Sprint(i))
	}
	s.Send(hubfixture.Items(0, bodies...))
}

// An outcome that arrives right before the loss of the link counts.
func TestOutcomesBeforeALossCount(t *testing.T) {
	for range 200 {
		testkit.Bubble(t, func(t *testing.T) {
			h := hubfixture.New(t)
			s, sink, ran := running(t, h)
			h.Inject(fault.Fault{Kind: fault.DetachAfterMessage, After: 20})
			send(s)
			<-ran
			require.Len(t, sink.AllResults(), 20)
		})
	}
}

// An outcome is reported when it arrives, although the hub never settles an earlier message. The
// loss of the link, or of the connection, leaves that message in doubt, and no other.
func TestAMessageThatIsNeverSettledHoldsUpNoOutcomes(t *testing.T) {
	for name, lose := range map[string]func(h *hubfixture.Broker){
		"detach": func(h *hubfixture.Broker) { h.DetachLinks("dev-1", fault.LinkTelemetry, hubdata.AMQPError{}) },
		"end":    func(h *hubfixture.Broker) { h.EndSessions("dev-1", hubdata.AMQPError{}) },
		"cut":    func(h *hubfixture.Broker) { h.Drop("dev-1") },
	} {
		testkit.Run(t, name, func(t *testing.T) {
			h := hubfixture.New(t)
			s, sink, ran := running(t, h)
			h.Inject(fault.Fault{Kind: fault.SwallowPuback, After: 9})
			h.Inject(fault.Fault{Kind: fault.RejectMessage, Condition: "amqp:not-allowed", After: 19})
			send(s)
			results := func() map[uint16]error {
				synctest.Wait()
				seen := map[uint16]error{}
				for _, r := range sink.AllResults() {
					seen[r.Tag] = r.Err
				}
				return seen
			}
			time.Sleep(time.Second)
			before := results()
			require.Len(t, before, 63)
			require.NotContains(t, before, uint16(9))
			for tag, err := range before {
				require.Equal(t, tag == 19, errors.Is(err, transport.Forbidden), "%d: %v", tag, err)
			}
			lose(h)
			require.Equal(t, transport.ScopeConnection, transport.Find(<-ran).Scope)
			require.Equal(t, before, results())
		})
	}
}

// What is not there is refused at the call.
func TestTwinAndMethodsAreNotThere(t *testing.T) {
	bubble(t, func(t *testing.T, _ *hubfixture.Broker, c *device.Client) {
		_, err := c.GetTwin(t.Context())
		require.ErrorIs(t, err, transport.Unsupported)
		require.ErrorContains(t, err, "use package amqp")
	})
}

// A frame larger than was announced ends the connection before go-amqp makes room for it.
func TestALargeFrameEndsTheConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		o := &amqp.Options{Auth: amqp.AuthAnonymous, Addresses: &amqp.Addresses{Telemetry: "q"}}
		o.Network = netopt.Options{Plaintext: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			near, far := memconn.Pair("near", "far")
			go func() {
				defer far.Close()
				head := wire.ProtocolHeader(wire.ProtocolSASL)
				_, _ = far.Write(head[:])
				_, _ = far.Write([]byte{0, 2, 0, 0})
				_, _ = io.Copy(io.Discard, far)
			}()
			return near, nil
		}}
		_, err := goamqp.New(o).Dial(t.Context(), &transport.Config{Creds: &transport.Credentials{Host: "h", DeviceID: "d"}})
		require.ErrorContains(t, err, "larger than 64 KiB")
	})
}

// rewriter is a connection that replaces bytes it reads.
type rewriter struct {
	net.Conn
	from, to []byte
}

func (c rewriter) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	copy(p, bytes.ReplaceAll(p[:n], c.from, c.to))
	return n, err
}

// The status of an answer to a token may have either name and any type that is a number. An answer
// without one refuses nothing, so the dial may be tried again.
func TestTheStatusOfATokenAnswer(t *testing.T) {
	const status = "\xa1\x0bstatus-code\x71\x00\x00\x00\xc8"
	for name, row := range map[string]struct {
		answer string // as long as status
		want   error
	}{
		"another name": {"\xa1\x0astatusCode\xa1\x040200", nil},
		"no name":      {"\xa1\x0bStatus-code\x71\x00\x00\x00\xc8", transport.Protocol},
		"no number":    {"\xa1\x0bstatus-code\xa1\x03two", transport.Protocol},
		"zero":         {"\xa1\x0bstatus-code\x71\x00\x00\x00\x00", transport.Protocol},
		"a refusal":    {"\xa1\x0bstatus-code\x71\x00\x00\x01\x91", transport.Unauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				h := hubfixture.New(t)
				o := options(h)
				dial := o.Network.Dial
				o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := dial(ctx, network, addr)
					return rewriter{c, []byte(status), []byte(row.answer)}, err
				}
				c, err := device.New(h.CredsWith(t, ""), goamqp.New(o), &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
				require.NoError(t, err)
				defer c.Close()
				err = c.Open(t.Context())
				require.ErrorIs(t, err, row.want)
				require.Equal(t, errors.Is(row.want, transport.Protocol), errfilter.Retryable(errors.Unwrap(err)), "%v", err)
			})
		})
	}
}

// A suspended hub refuses every message, and the client keeps its queue.
func TestASuspendedHubKeepsTheQueueFull(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubfixture.Broker, c *device.Client) {
		suspended := h.Inject(fault.Fault{Kind: fault.RejectMessage, Condition: "com.microsoft:iot-hub-suspended",
			Times: -1})
		const n = 50
		for range n {
			require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: []byte("a")}, nil))
		}
		time.Sleep(time.Minute)
		require.Equal(t, device.StateDisconnected, c.Status().State)
		require.Zero(t, c.Stats().Refused)
		suspended.Remove()
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Flush(t.Context()))
		require.Len(t, h.Messages(), n)
	})
}

// A handler is busy for two minutes and the inbox is full, since the connection was lost meanwhile:
// the hub does not give up the message that has no place.
func TestAMessageWithoutAPlaceOutlastsASlowHandler(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		h := hubfixture.New(t)
		c, err := device.New(h.CredsWith(t, ""), goamqp.New(options(h)), &device.Options{Inbox: 2})
		require.NoError(t, err)
		defer c.Close()
		handled := 0
		c.HandleMessages(func(context.Context, *transport.Message) error {
			if handled++; handled == 1 {
				time.Sleep(2 * time.Minute)
			}
			return nil
		})
		require.NoError(t, c.Open(t.Context()))
		for _, body := range []string{"a", "b"} {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte(body)}))
		}
		time.Sleep(time.Second)
		require.Equal(t, 1, h.Drop("dev-1"))
		time.Sleep(10 * time.Minute)
		require.Zero(t, h.CountC2D("dev-1", hubdata.C2DDeadLettered))
		require.Equal(t, 2, h.CountC2D("dev-1", hubdata.C2DCompleted))
	})
}

// After the loss of a link for tokens, the renewal fails with the hub's reason, and the connection
// is replaced at once.
func TestALostTokenLinkIsFoundAtTheRenewal(t *testing.T) {
	why := hubdata.AMQPError{Condition: "amqp:link:detach-forced"}
	for name, lose := range map[string]func(h *hubfixture.Broker) int{
		"sender": func(h *hubfixture.Broker) int {
			return h.DetachLinks("dev-1", fault.LinkCBSSender, why)
		},
		"receiver": func(h *hubfixture.Broker) int {
			return h.DetachLinks("dev-1", fault.LinkCBSReceiver, why)
		},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			h := hubfixture.New(t)
			var renewals atomic.Int32
			failed := make(chan error, 10)
			c, err := device.New(h.CredsWith(t, ""), goamqp.New(options(h)), &device.Options{
				Trace: &device.Trace{Renewed: func(_ time.Time, err error) { failed <- err }},
				OnStatus: func(s device.Status) {
					if s.Reason == device.ReasonTokenRenewal {
						renewals.Add(1)
					}
				}})
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.Open(t.Context()))
			require.Equal(t, 1, lose(h))
			time.Sleep(52 * time.Minute) // of an hour
			require.Len(t, failed, 1)
			err = <-failed
			require.ErrorIs(t, err, transport.Unavailable)
			require.ErrorContains(t, err, "amqp:link:detach-forced")
			require.False(t, errfilter.Retryable(err))
			require.EqualValues(t, 1, renewals.Load())
			require.Equal(t, device.StateConnected, c.Status().State)
			require.EqualValues(t, 2, c.Stats().Connections)
		})
	}
}
