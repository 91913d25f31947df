package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// gateway is a set of clients on one connection that receive messages.
type gateway struct {
	all []*device.Client

	mu       sync.Mutex
	got      []int   // cloud-to-device messages
	desired  []int64 // the last reported version
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

// requireBothWays checks that a message from each device arrives, and a message to each.
func (g *gateway) requireBothWays(t *testing.T, h *hub, round int) {
	t.Helper()
	each(g.all, func(i int, c *device.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := c.Send(ctx, numbered(round)); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		id := fmt.Sprintf("fleet-%d", i)
		if err := h.SendC2D(id, hubdata.C2D{MessageID: fmt.Sprint(round)}); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		if err := h.WaitC2D(ctx, id, hubdata.C2DCompleted, round+1); err != nil {
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
		// A link gets its credit shortly after it is attached.
		r, err := h.CallMethod(ctx, id, hubdata.MethodCall{Name: "who", Payload: []byte(body), ConnectTimeout: time.Second,
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
// all recover, with their subscriptions.
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
				hubdata.AMQPError{Condition: "amqp:session:errant-link"}))
			check(1)
		}
		require.Equal(t, n, h.EndSessions("", hubdata.AMQPError{Condition: "amqp:session:errant-link"}))
		check(1)
		h.Drop("")
		check(2)
		h.CloseAMQP("", hubdata.AMQPError{Condition: "amqp:connection:forced"})
		check(3)
		for i, c := range g.all {
			require.LessOrEqual(t, c.Stats().Connections, uint64(3), "%d: what concerned a session was mended there", i)
			require.NoError(t, c.Close())
		}
	})
}

// A device with bad credentials, before and after the others connect, and one that is disabled, get
// their own errors, and the others are not affected. The Java SDK reports them together, in a map
// from device to cause.
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
		require.Equal(t, device.ReasonNotRetryable, bad.Status().Reason)
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
		require.Equal(t, device.ReasonNotRetryable, c.Status().Reason)
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

// Tokens of ten minutes, on all devices of a connection, for hours: telemetry, messages, twin and
// methods work after each renewal in place, without a failure.
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

// A bad or disabled device neither spins nor affects the others: it backs off by its own policy,
// and costs the connection a few tokens at most.
func TestABadDeviceNeitherSpinsNorDisturbsOthers(t *testing.T) {
	for name, bad := range map[string]struct {
		fault fault.Fault
		most  uint64 // attempts in 10 minutes
	}{
		"refused for good": {fault.Fault{Kind: fault.RefuseToken, Status: 401}, 1},
		"refused for now":  {fault.Fault{Kind: fault.RefuseToken, Status: 503}, 90},
		"throttled":        {fault.Fault{Kind: fault.RefuseToken, Status: 429}, 30},
		"unanswered":       {fault.Fault{Kind: fault.SwallowToken}, 40},
		"link refused":     {fault.Fault{Kind: fault.RefuseAttach, Link: fault.LinkC2D}, 90},
		"link lost at once": {fault.Fault{Kind: fault.DetachWhileIdle, Link: fault.LinkC2D,
			Delay: time.Millisecond}, 90},
		// repaired in place
		"link lost every 6 s": {fault.Fault{Kind: fault.DetachWhileIdle, Link: fault.LinkC2D,
			Delay: 6 * time.Second}, 1},
		"messages refused":      {fault.Fault{Kind: fault.ReleaseMessage}, 1},
		"links lost by sending": {fault.Fault{Kind: fault.DetachOnMessage}, 1},
		"detached in doubt":     {fault.Fault{Kind: fault.DetachOnMessage, Unclosed: true}, 1},
		"session ended":         {fault.Fault{Kind: fault.EndOnMessage}, 90},
		"rejected, throttled": {fault.Fault{Kind: fault.RejectMessage,
			Condition: "com.microsoft:device-container-throttled"}, 1},
		"rejected, quota":        {fault.Fault{Kind: fault.RejectMessage, Condition: "amqp:resource-limit-exceeded"}, 1},
		"rejected, unauthorized": {fault.Fault{Kind: fault.RejectMessage, Condition: "amqp:unauthorized-access"}, 2},
		"no credit":              {fault.Fault{Kind: fault.WithholdCredit}, 1},
		"no outcomes":            {fault.Fault{Kind: fault.SwallowPuback}, 40},
		"attach refused":         {fault.Fault{Kind: fault.RefuseAttach, Condition: "amqp:not-found"}, 1},
		"attach unanswered":      {fault.Fault{Kind: fault.SwallowAttach}, 40},
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
					if n := testkit.Goroutines(); minute == 1 {
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
