package amqp_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// requireAll requires n messages at the hub, numbered from 0, each at least once.
func requireAll(t testing.TB, h *hub, id string, n int) {
	t.Helper()
	seen := map[string]bool{}
	for _, m := range h.Messages() {
		if m.DeviceID == id {
			require.Equal(t, m.MessageID, string(m.Body))
			seen[m.MessageID] = true
		}
	}
	require.Len(t, seen, n)
}

func numbered(i int) *transport.Message {
	id := strconv.Itoa(i)
	return &transport.Message{ID: id, Body: []byte(id)}
}

// Close is bounded with a silent hub, and with a hub that accepts no data.
func TestCloseIsBounded(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, h *hub, c *device.Client){
		"idle":   func(*testing.T, *hub, *device.Client) {},
		"silent": func(_ *testing.T, h *hub, _ *device.Client) { h.Silence() },
		"no credit": func(_ *testing.T, h *hub, _ *device.Client) {
			h.inject(fault.Fault{Kind: fault.WithholdCredit, Times: -1})
		},
		"attach hangs": func(_ *testing.T, h *hub, _ *device.Client) {
			h.inject(fault.Fault{Kind: fault.SwallowAttach, Times: -1})
		},
		"no outcomes": func(_ *testing.T, h *hub, _ *device.Client) {
			h.inject(fault.Fault{Kind: fault.SwallowPuback, Times: -1})
		},
		"detach in doubt": func(_ *testing.T, h *hub, _ *device.Client) {
			h.inject(fault.Fault{Kind: fault.DetachOnMessage, Unclosed: true, Times: -1})
		},
		"hub gone": func(_ *testing.T, h *hub, _ *device.Client) { h.inject(fault.Fault{Kind: fault.Absent}) },
		"token hangs": func(_ *testing.T, h *hub, _ *device.Client) {
			h.inject(fault.Fault{Kind: fault.SwallowToken, Times: -1})
			h.Drop("")
		},
	} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", shared: ", shared), func(t *testing.T) {
				bubble(t, func(t *testing.T, h *hub) {
					o := h.options()
					var tr transport.Transport = amqp.New(o)
					if shared {
						mux := amqp.NewMux(o)
						other, err := device.New(h.device(t, "other"), mux, nil)
						require.NoError(t, err)
						require.NoError(t, other.Open(t.Context()))
						defer other.Close()
						tr = mux
					}
					c, err := device.New(h.CredsWith(t, ""), tr, nil)
					require.NoError(t, err)
					require.NoError(t, c.Open(t.Context()))
					prepare(t, h, c)
					large := make([]byte, 200_000)
					for range 8 {
						require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: large}, nil))
					}
					time.Sleep(5 * time.Second)
					began := time.Now()
					require.NoError(t, c.Close())
					require.LessOrEqual(t, time.Since(began), 1100*time.Millisecond)
				})
			})
		}
	}
}

// The faults that the service injects on request, with which the official SDKs are tested. The
// device recovers from each, and all its features work afterwards.
func TestFaultsOnRequest(t *testing.T) {
	for name, want := range map[string]struct {
		dials   int32
		seconds int // its duration
		refused int // refused messages
	}{
		"KillTcp": {dials: 2}, "KillAmqpConnection": {dials: 2}, "ShutDownAmqp": {dials: 2},
		"KillAmqpSession": {dials: 1}, "KillAmqpCBSLinkReq": {dials: 1}, "KillAmqpCBSLinkResp": {dials: 1},
		"KillAmqpD2CLink":     {dials: 1},
		"KillAmqpC2DLink":     {dials: 1},
		"KillAmqpTwinLinkReq": {dials: 1}, "KillAmqpTwinLinkResp": {dials: 1}, "KillAmqpMethodReqLink": {dials: 1},
		"KillAmqpMethodRespLink": {dials: 1},
		"InvokeThrottling":       {dials: 1, seconds: 20, refused: 1}, "InvokeMaxMessageQuota": {dials: 1, seconds: 20,
			refused: 1},
		"InvokeAuthError": {dials: 2, refused: 1}, // once: the client gets a new token
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				var got []string
				creds := *h.CredsWith(t, "")
				var tokens atomic.Int32
				sign := creds.Sign
				creds.Sign = func(ctx context.Context, text []byte) ([]byte, error) {
					tokens.Add(1)
					return sign(ctx, text)
				}
				c, err := device.New(&creds, amqp.New(h.options()), nil)
				require.NoError(t, err)
				c.HandleMessages(func(_ context.Context, m *transport.Message) error {
					got = append(got, m.ID)
					return nil
				})
				defer c.Close()
				require.NoError(t, c.HandleMethod("echo",
					func(_ context.Context, m *device.MethodCall) (int, []byte) { return 200, m.Body }))
				require.NoError(t, c.Open(t.Context()))
				useAll := func(i int) {
					t.Helper()
					require.NoError(t, c.Send(t.Context(), numbered(i)))
					require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: strconv.Itoa(i)}))
					require.NoError(t, h.WaitC2D(t.Context(), "dev-1", hubdata.C2DCompleted, i+1))
					twin, err := c.GetTwin(t.Context())
					require.NoError(t, err)
					require.NotNil(t, twin)
					result, err := h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "echo",
						Payload: []byte(strconv.Itoa(i))})
					require.NoError(t, err)
					require.Equal(t, strconv.Itoa(i), string(result.Payload))
				}
				useAll(0)
				time.Sleep(10 * time.Second)
				require.NoError(t, c.Send(t.Context(), &transport.Message{Properties: []transport.Property{
					{Name: "AzIoTHub_FaultOperationType", Value: name}, {Name: "AzIoTHub_FaultOperationCloseReason", Value: "test"},
					{Name: "AzIoTHub_FaultOperationDelayInSecs", Value: "1"}, {Name: "AzIoTHub_FaultOperationDurationInSecs",
						Value: strconv.Itoa(want.seconds)},
				}}))
				time.Sleep(15 * time.Second) // an idle sending link is probed every 10 s
				useAll(1)
				before := tokens.Load()
				time.Sleep(3 * time.Hour)
				require.GreaterOrEqual(t, tokens.Load(), before+3, "a token lasts for an hour")
				useAll(2)
				require.Equal(t, []string{"0", "1", "2"}, got)
				requireAll(t, h, "dev-1", 3)
				require.Equal(t, want.dials, h.dials.Load(), "tokens are renewed in place, too")
				require.Len(t, h.FaultMessages(), 1)
				fault := h.FaultMessages()[0]
				require.True(t, fault.Happened)
				if want.refused > 0 {
					require.GreaterOrEqual(t, fault.Refused, want.refused)
				} else {
					require.Zero(t, fault.Refused)
				}
			})
		})
	}
}

// Messages and answers to direct methods share a session. In several transfers each, they
// interleave, and each message is acknowledged at once.
func TestLargeMessagesAmongLargeAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		c, err := device.New(h.CredsWith(t, ""), amqp.New(h.options()), &device.Options{AckTimeout: 5 * time.Second})
		require.NoError(t, err)
		answer := fmt.Appendf(nil, "%0120000d", 1)
		answer[0] = '1'
		c.HandleMethod("m", func(context.Context, *device.MethodCall) (int, []byte) { return 200, answer })
		require.NoError(t, c.Open(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				for range 200 { // time goes on when they have ended
					if ctx.Err() != nil {
						return
					}
					_, _ = h.CallMethod(ctx, "dev-1", hubdata.MethodCall{Name: "m", ResponseTimeout: 5 * time.Second})
				}
			})
		}
		for range 40 {
			began := time.Now()
			require.NoError(t, c.Send(ctx, &transport.Message{Body: make([]byte, 250_000)}))
			require.Less(t, time.Since(began), time.Second)
		}
		require.Zero(t, c.Stats().Resent)
		cancel()
		calls.Wait()
		require.NotEmpty(t, h.MethodAnswers(""))
		require.NoError(t, c.Close())
	})
}

// A slow source and a hub that does not answer share the time of a renewal, so the connection is
// kept.
func TestARenewalWithASlowSourceAndASilentHub(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		own := h.CredsWith(t, "")
		creds := *own
		creds.Sign, creds.Token = nil, func(ctx context.Context) (transport.Token, error) {
			time.Sleep(11 * time.Second)
			return own.NewToken(ctx)
		}
		var failed atomic.Int32
		c, err := device.New(&creds, amqp.New(h.options()), &device.Options{Trace: &device.Trace{
			Renewed: func(_ time.Time, err error) {
				if err != nil {
					failed.Add(1)
				}
			}}})
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Open(t.Context()))
		h.inject(fault.Fault{Kind: fault.SwallowToken})
		time.Sleep(3 * time.Hour)
		require.NoError(t, c.Send(t.Context(), numbered(0)))
		require.EqualValues(t, 1, failed.Load())
		require.EqualValues(t, 1, c.Stats().Connections)
	})
}
