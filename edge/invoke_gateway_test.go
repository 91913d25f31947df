package edge_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/workload"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// callSite is an edge device with a gateway, a daemon, the modules mod-a and mod-b, and a leaf
// device.
type callSite struct {
	*testbroker.Hub
	daemon *workload.Server
}

// atCallSite is a bubble with a callSite.
func atCallSite(t *testing.T, f func(t *testing.T, s *callSite)) {
	t.Helper()
	testkit.In2030(t, func(t *testing.T) {
		s := &callSite{Hub: hubfixture.Open(t, &testbroker.Options{
			Gateway: &testbroker.GatewayOptions{Name: "gateway.local", DeviceID: "edge-1"},
		}, "edge-1", "leaf-1", "edge-2")}
		for _, id := range [][2]string{{"edge-1", "mod-a"}, {"edge-1", "mod-b"}, {"edge-2", "mod-c"}} {
			_, err := s.AddModule(id[0], id[1])
			require.NoError(t, err)
		}
		var err error
		s.daemon, err = workload.New(s.Hub, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.daemon.Close()) })
		f(t, s)
	})
}

// module returns a module of edge-1 from its environment, with connections to this port.
func (s *callSite) module(t testing.TB, name string, port testbroker.Port) *edge.Module {
	m, err := edge.FromEnvironment(&edge.Options{
		LookupEnv: workload.LookupEnv(s.daemon.Environment("edge-1", name)), Dial: s.daemon.Dial,
	})
	require.NoError(t, err)
	m.Network.Dial = s.Dial(port)
	return m
}

// caller returns an Invoker of mod-a.
func (s *callSite) caller(t testing.TB) *edge.Invoker {
	m := s.module(t, "mod-a", testbroker.PortHTTPS)
	v, err := edge.NewInvoker(m.Credentials, &edge.InvokerOptions{Network: m.Network,
		RetryPolicy: retrypolicy.MaxElapsed{Limit: time.Hour, Policy: retrypolicy.Fixed{Delay: time.Second}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	return v
}

// callee makes a client with a handler of "start", and counts its calls. It is not open.
func callee(t testing.TB, creds *transport.Credentials, tr transport.Transport,
	handle device.MethodHandler) (c *device.Client, calls *atomic.Int32) {
	calls = new(atomic.Int32)
	c, err := device.New(creds, tr, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.HandleMethod("start", func(ctx context.Context, m *device.MethodCall) (int, []byte) {
		calls.Add(1)
		return handle(ctx, m)
	}))
	return c, calls
}

// echo answers with the call.
func echo(_ context.Context, m *device.MethodCall) (int, []byte) {
	return 207, append(append([]byte(`{"got":`), m.Body...), '}')
}

// overMQTT returns mod-b as a callee over MQTT.
func (s *callSite) overMQTT(t testing.TB, handle device.MethodHandler) (*device.Client, *atomic.Int32) {
	m := s.module(t, "mod-b", testbroker.PortMQTTS)
	return callee(t, m.Credentials, mqtt.New(&mqtt.Options{Network: m.Network}), handle)
}

var start = edge.Method{Name: "start", Payload: []byte(`{"speed":3}`)}

// A module over HTTPS calls methods that a module and a leaf device serve over MQTT and AMQP.
func TestAModuleCallsMethodsThroughTheGateway(t *testing.T) {
	atCallSite(t, func(t *testing.T, s *callSite) {
		overAMQP := s.module(t, "mod-b", testbroker.PortAMQPS)
		leaf, err := device.ParseConnectionString(s.ConnectionString("leaf-1"))
		require.NoError(t, err)
		leafNetwork := netopt.Options{Dial: s.Dial(testbroker.PortMQTTS), TLS: s.ClientTLS()}
		v := s.caller(t)
		for name, c := range map[string]struct {
			target edge.Target
			serve  func() (*device.Client, *atomic.Int32)
		}{
			"a module over MQTT": {modB, func() (*device.Client, *atomic.Int32) { return s.overMQTT(t, echo) }},
			"a module over AMQP": {modB, func() (*device.Client, *atomic.Int32) {
				return callee(t, overAMQP.Credentials, amqp.New(&amqp.Options{Network: overAMQP.Network}), echo)
			}},
			"a leaf device over MQTT": {edge.Target{DeviceID: "leaf-1"}, func() (*device.Client, *atomic.Int32) {
				return callee(t, leaf, mqtt.New(&mqtt.Options{Network: leafNetwork}), echo)
			}},
		} {
			client, calls := c.serve()
			require.NoError(t, client.Open(t.Context()), name)
			result, err := v.Invoke(t.Context(), c.target, start)
			require.NoError(t, err, name)
			require.Equal(t, 207, result.Status, name)
			require.JSONEq(t, `{"got":{"speed":3}}`, string(result.Payload), name)
			result, err = v.Invoke(t.Context(), c.target, edge.Method{Name: strings.Repeat("x", 100)})
			require.NoError(t, err, name)
			require.Equal(t, 404, result.Status, "the callee's own status is no error")
			_, err = v.Invoke(t.Context(), c.target, edge.Method{Name: "a name of no hub"})
			require.ErrorIs(t, err, transport.Invalid, name)
			require.Equal(t, int32(1), calls.Load(), name)
			require.NoError(t, client.Close())
		}
	})
}

// The gateway waits for a callee that is not connected for ConnectTimeout.
func TestACalleeThatIsNotConnected(t *testing.T) {
	atCallSite(t, func(t *testing.T, s *callSite) {
		v := s.caller(t)
		began := time.Now()
		_, err := v.Invoke(t.Context(), modB, start)
		require.ErrorIs(t, err, transport.NotFound)
		require.NotErrorIs(t, err, transport.ErrOutcomeUnknown)
		require.Zero(t, time.Since(began))

		waiting := start
		waiting.ConnectTimeout = 20 * time.Second
		_, err = v.Invoke(t.Context(), modB, waiting)
		require.ErrorIs(t, err, transport.NotFound)
		require.Equal(t, 20*time.Second, time.Since(began))

		client, calls := s.overMQTT(t, echo)
		time.AfterFunc(10*time.Second, func() { _ = client.Start() })
		result, err := v.Invoke(t.Context(), modB, waiting)
		require.NoError(t, err)
		require.Equal(t, 207, result.Status)
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Equal(t, int32(1), calls.Load())
	})
}

// What the gateway cannot know to have been undone is called once, with an unknown outcome.
func TestACalleeThatDoesNotAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		during func(s *callSite)
		kind   transport.Kind
		after  time.Duration
	}{
		"it is slow":            {func(*callSite) {}, transport.Timeout, 5 * time.Second},
		"the gateway goes down": {func(s *callSite) { _ = s.StopGateway() }, transport.Network, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			atCallSite(t, func(t *testing.T, s *callSite) {
				client, calls := s.overMQTT(t, func(ctx context.Context, _ *device.MethodCall) (int, []byte) {
					<-ctx.Done()
					return 200, nil
				})
				require.NoError(t, client.Open(t.Context()))
				v := s.caller(t)
				began := time.Now()
				time.AfterFunc(2*time.Second, func() { c.during(s) })
				_, err := v.Invoke(t.Context(), modB, edge.Method{Name: "start", ResponseTimeout: 5 * time.Second})
				require.ErrorIs(t, err, c.kind)
				require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
				require.Equal(t, c.after, time.Since(began))
				require.Equal(t, int32(1), calls.Load())
			})
		})
	}
}

// A gateway takes calls from modules of its own device only.
func TestAModuleOfAnotherDeviceMayNotCall(t *testing.T) {
	atCallSite(t, func(t *testing.T, s *callSite) {
		client, calls := s.overMQTT(t, echo)
		require.NoError(t, client.Open(t.Context()))
		creds, err := device.ParseConnectionString(s.ConnectionString("edge-2/mod-c"))
		require.NoError(t, err)
		v, err := edge.NewInvoker(creds, &edge.InvokerOptions{Network: netopt.Options{
			Dial: s.Dial(testbroker.PortHTTPS), TLS: s.ClientTLS()}})
		require.NoError(t, err)
		defer v.Close()
		_, err = v.Invoke(t.Context(), edge.Target{DeviceID: "edge-1", ModuleID: "mod-b"}, start)
		require.ErrorIs(t, err, transport.Unauthorized)
		require.NotErrorIs(t, err, transport.ErrOutcomeUnknown)
		require.ErrorContains(t, err, "modules of its own device only")
		require.Zero(t, calls.Load())
	})
}

// A call waits for a gateway that restarts with another certificate, and runs once. The Invoker
// fetches the trust bundle again by itself.
func TestACallWaitsForAGatewayThatRestarts(t *testing.T) {
	atCallSite(t, func(t *testing.T, s *callSite) {
		client, calls := s.overMQTT(t, echo)
		require.NoError(t, client.Open(t.Context()))
		v := s.caller(t)
		_, err := v.Invoke(t.Context(), modB, start)
		require.NoError(t, err)
		require.NoError(t, s.StopGateway())
		s.RotateCertificate()
		time.AfterFunc(30*time.Second, func() { _ = s.StartGateway() })
		synctest.Wait()
		waiting := start
		waiting.ConnectTimeout = time.Minute // for the callee to be back
		began := time.Now()
		result, err := v.Invoke(t.Context(), modB, waiting)
		require.NoError(t, err)
		require.Equal(t, 207, result.Status)
		require.GreaterOrEqual(t, time.Since(began), 30*time.Second)
		require.Equal(t, int32(2), calls.Load())
	})
}
