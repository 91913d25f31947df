package edge_test

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/workload"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"

	hubhttp "github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// stacks are the transports that a module may use.
var stacks = []struct {
	name string
	port testbroker.Port
	make func(*transport.Credentials, netopt.Options) transport.Transport
}{
	{"mqtt", testbroker.PortMQTTS, func(_ *transport.Credentials, n netopt.Options) transport.Transport {
		return mqtt.New(&mqtt.Options{Network: n})
	}},
	{"mqtt over WebSocket", testbroker.PortHTTPS, func(_ *transport.Credentials, n netopt.Options) transport.Transport {
		n.Tunnel = websocket.MQTT(nil)
		return mqtt.New(&mqtt.Options{Network: n})
	}},
	{"amqp", testbroker.PortAMQPS, func(_ *transport.Credentials, n netopt.Options) transport.Transport {
		return amqp.New(&amqp.Options{Network: n})
	}},
	{"amqp over WebSocket", testbroker.PortHTTPS, func(_ *transport.Credentials, n netopt.Options) transport.Transport {
		n.Tunnel = websocket.AMQP(nil)
		return amqp.New(&amqp.Options{Network: n})
	}},
	{"http", testbroker.PortHTTPS, func(_ *transport.Credentials, n netopt.Options) transport.Transport {
		return hubhttp.New(&hubhttp.Options{Network: n})
	}},
}

// site is an edge device: a gateway, a daemon, and the client of one module.
type site struct {
	*testbroker.Hub
	daemon *workload.Server
	module *edge.Module
	client *device.Client

	mu       sync.Mutex
	statuses []device.Status
}

// atSite runs f in a bubble for each transport. The client is not open.
func atSite(t *testing.T, life time.Duration, f func(t *testing.T, s *site)) {
	for _, stack := range stacks {
		t.Run(stack.name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				s := newSite(t, stack.port)
				s.module.Credentials.TokenLife = life
				var err error
				s.client, err = device.New(s.module.Credentials, stack.make(s.module.Credentials, s.module.Network),
					&device.Options{OnStatus: s.note})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, s.client.Close()) })
				f(t, s)
			})
		})
	}
}

const gatewayName = "gateway.local"

func newSite(t *testing.T, port testbroker.Port) *site {
	s := &site{Hub: hubfixture.Open(t, &testbroker.Options{Gateway: &testbroker.GatewayOptions{Name: gatewayName}},
		"edge-1")}
	_, err := s.AddModule("edge-1", "filter")
	require.NoError(t, err)
	s.daemon, err = workload.New(s.Hub, &workload.Options{Device: "edge-1", GatewayHostName: gatewayName})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.daemon.Close()) })
	s.module, err = edge.FromEnvironment(&edge.Options{Dial: s.daemon.Dial,
		LookupEnv: workload.LookupEnv(s.daemon.Environment("edge-1", "filter"))})
	require.NoError(t, err)
	s.module.Network.Dial = s.Dial(port)
	return s
}

func (s *site) note(status device.Status) {
	s.mu.Lock()
	s.statuses = append(s.statuses, status)
	s.mu.Unlock()
}

// failures returns the Kinds of the failed attempts so far, without repetition. It fails when the
// client gave up.
func (s *site) failures(t *testing.T) (kinds []transport.Kind) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, status := range s.statuses {
		require.NotEqual(t, device.ReasonNotRetryable, status.Reason, "%v", status.Err)
		if status.Reason == device.ReasonAttemptFailed {
			k := transport.KindOf(status.Err)
			if len(kinds) == 0 || kinds[len(kinds)-1] != k {
				kinds = append(kinds, k)
			}
		}
	}
	return kinds
}

// send sends a message, which waits for the gateway.
func (s *site) send(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, s.client.Send(t.Context(), &transport.Message{Body: []byte(text)}))
}

func TestAModuleSendsThroughTheGateway(t *testing.T) {
	atSite(t, 0, func(t *testing.T, s *site) {
		require.NoError(t, s.client.Open(t.Context()))
		s.send(t, "x")
		require.NoError(t, s.WaitMessages(t.Context(), 1))
		log := s.Messages()
		require.Equal(t, "edge-1", log[0].DeviceID)
		require.Equal(t, "filter", log[0].ModuleID)
		require.Equal(t, 1, s.daemon.Count(workload.CallTrustBundle))
		require.Equal(t, 1, s.daemon.Count(workload.CallSign))
		require.Empty(t, s.failures(t))
	})
}

// At boot a module may come first, then the daemon, then the gateway.
func TestAModuleWaitsForTheDaemonAndTheGateway(t *testing.T) {
	atSite(t, 0, func(t *testing.T, s *site) {
		s.daemon.Stop()
		require.NoError(t, s.StopGateway())
		require.NoError(t, s.client.Start())
		time.Sleep(time.Minute)
		require.Equal(t, []transport.Kind{transport.Network}, s.failures(t))
		require.Zero(t, s.daemon.Count(workload.CallAny))
		s.daemon.Inject(workload.Fault{Kind: workload.FaultAnswerStatus, Status: 503, Times: 3})
		s.daemon.Inject(workload.Fault{Kind: workload.FaultUnknownModule, Times: 2})
		require.NoError(t, s.daemon.Start())
		time.Sleep(time.Minute)
		require.NoError(t, s.StartGateway())
		s.send(t, "x")
		require.Contains(t, s.failures(t), transport.Unavailable, "the daemon's 503")
	})
}

// The gateway gets a new authority, and the bundle has it now or later.
func TestAModuleSurvivesANewCertificateOfTheGateway(t *testing.T) {
	atSite(t, 0, func(t *testing.T, s *site) {
		require.NoError(t, s.client.Open(t.Context()))
		s.send(t, "before")
		time.Sleep(time.Minute)
		s.restart(t)
		s.send(t, "new bundle")
		require.NotContains(t, s.failures(t), transport.Unavailable, "the first handshake asked for the new bundle")
		require.Equal(t, 2, s.daemon.Count(workload.CallTrustBundle))

		time.Sleep(time.Minute)
		began := time.Now()
		s.daemon.Inject(workload.Fault{Kind: workload.FaultStaleBundle, Times: -1, For: 30 * time.Second})
		s.restart(t)
		s.send(t, "late bundle")
		require.Contains(t, s.failures(t), transport.Unavailable)
		require.GreaterOrEqual(t, time.Since(began), 30*time.Second)
		require.Less(t, time.Since(began), time.Minute)
		require.LessOrEqual(t, s.daemon.Count(workload.CallTrustBundle), 2+30/5+2, "not more often than every 5 s")
		requireBodies(t, s, "before", "new bundle", "late bundle")
	})
}

// restart stops the gateway for 10 s; it comes back with a certificate of a new authority.
func (s *site) restart(t *testing.T) {
	t.Helper()
	require.NoError(t, s.StopGateway())
	s.RotateCertificate()
	time.Sleep(10 * time.Second)
	require.NoError(t, s.StartGateway())
}

// requireBodies checks the hub's log; the hub may have a message twice.
func requireBodies(t *testing.T, s *site, want ...string) {
	t.Helper()
	require.NoError(t, s.WaitMessages(t.Context(), len(want)))
	synctest.Wait()
	var got []string
	seen := map[string]bool{}
	for _, m := range s.Messages() {
		if text := string(m.Body); !seen[text] {
			seen[text] = true
			got = append(got, text)
		}
	}
	require.Equal(t, want, got)
}

// A gateway whose bundle never gets the new authority is retried for ever, and takes nothing.
func TestAGatewayWithoutTrustIsNotUsed(t *testing.T) {
	atSite(t, 0, func(t *testing.T, s *site) {
		s.daemon.Inject(workload.Fault{Kind: workload.FaultForeignBundle, Times: -1})
		require.NoError(t, s.client.Start())
		time.Sleep(10 * time.Minute)
		require.Equal(t, []transport.Kind{transport.Unavailable}, s.failures(t))
		require.Zero(t, s.Connections(""))
	})
}

// A certificate of a trusted authority for another name is not the gateway's.
func TestTheGatewaysNameIsVerified(t *testing.T) {
	atSite(t, 0, func(t *testing.T, s *site) {
		require.NoError(t, s.PresentName("other.local"))
		require.NoError(t, s.client.Start())
		time.Sleep(time.Minute)
		require.Equal(t, []transport.Kind{transport.Unavailable}, s.failures(t))
		require.Zero(t, s.Connections(""))
		require.NoError(t, s.PresentName(gatewayName))
		s.send(t, "x")
	})
}

// Each fault of the daemon, during the renewal of a token, ends in a connection.
func TestFaultsOfTheDaemonWhileTokensAreRenewed(t *testing.T) {
	for _, kind := range workload.FaultKinds() {
		if kind == workload.FaultWrongDigest { // the gateway refuses the token for good
			continue
		}
		t.Run(kind.String(), func(t *testing.T) {
			atSite(t, 10*time.Minute, func(t *testing.T, s *site) {
				require.NoError(t, s.client.Open(t.Context()))
				s.daemon.Inject(workload.Fault{Kind: kind, Times: -1, For: 12 * time.Minute, Delay: 25 * time.Second,
					Size: 1 << 20})
				for i := range 30 {
					s.send(t, strconv.Itoa(i))
					time.Sleep(time.Minute)
				}
				s.failures(t)
				require.GreaterOrEqual(t, s.daemon.Count(workload.CallSign), 4)
				require.GreaterOrEqual(t, len(s.Messages()), 30)
			})
		})
	}
}

// The module is created anew: the daemon does not know the former generation, and ends this process
// before long. Until then its client retries.
func TestAModuleOfAFormerGenerationRetries(t *testing.T) {
	atSite(t, 0, func(t *testing.T, s *site) {
		require.NoError(t, s.RemoveDevice("edge-1/filter"))
		_, err := s.AddModule("edge-1", "filter")
		require.NoError(t, err)
		require.NoError(t, s.client.Start())
		time.Sleep(10 * time.Minute)
		require.Equal(t, []transport.Kind{transport.Unavailable}, s.failures(t))
		require.Less(t, s.daemon.Count(workload.CallSign), 100)
	})
}

// A token that the gateway refuses is no failure of the daemon.
func TestAWrongSignatureIsUnauthorized(t *testing.T) {
	atSite(t, 0, func(t *testing.T, s *site) {
		s.daemon.Inject(workload.Fault{Kind: workload.FaultWrongDigest, Times: -1})
		err := s.client.Open(t.Context())
		require.Equal(t, transport.Unauthorized, transport.KindOf(err), "%v", err)
	})
}
