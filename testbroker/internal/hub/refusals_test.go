package hub_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestRefusedLinksNameTheirAddress(t *testing.T) {
	for name, c := range map[string]struct{ address, want string }{
		"no such path": {
			"/devices/dev-1/messages/event",
			`#1 refused "/devices/dev-1/messages/event": amqp:not-found: address "/devices/dev-1/messages/event"`,
		},
		"another hub": {
			"amqps://other.example.test/devices/dev-1/messages/events",
			`#1 refused "amqps://other.example.test/devices/dev-1/messages/events": `,
		},
		"device without token": {
			"/devices/dev-2/messages/events",
			`#1 dev-2 refused "/devices/dev-2/messages/events": no token for `,
		},
	} {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			var rec hubtest.Recorder
			h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: rec.Event})
			hubtest.AddDevice(t, h, "dev-2")
			p := hubtest.LoginAMQP(t, h, d)
			_, err := p.Session().NewSender(t.Context(), c.address, nil)
			var refusal *amqp.Error
			require.ErrorAs(t, err, &refusal)
			synctest.Wait()
			events := rec.Text()
			require.Len(t, events, 2)
			require.Equal(t, "#1 dev-1 connected", events[0])
			require.Contains(t, events[1], c.want)
		})
	}
}

func TestRefusedRequestsNameTheirPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec hubtest.Recorder
		h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: rec.Event})
		p := hubtest.OverHTTP(t, h, d)
		require.Equal(t, 404, p.Post("/device/dev-1/messages/events?sig=secret", "").StatusCode)
		require.Equal(t, 401, p.Post("/devices/dev-1/messages/events"+hubtest.Version, "", "Authorization",
			"nonsense").StatusCode)
		synctest.Wait()
		events := rec.Text()
		require.Len(t, events, 2)
		require.Contains(t, events[0], `#1 refused "POST /device/dev-1/messages/events" with status 404: `)
		require.Contains(t, events[1], `#1 dev-1 refused "POST /devices/dev-1/messages/events" with status 401: `)
		require.NotContains(t, events[0], "secret")
	})
}

// Back ends are served although their connection has no device.
func TestServedConnectionsAreNotCalledRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec hubtest.Recorder
		h, _ := hubtest.NewHub(t, &testbroker.Options{OnEvent: rec.Event})
		p := hubtest.BackEnd(t, h, hubdata.RightAll)
		require.Equal(t, 404, p.Do("GET", "/devices/dev-9"+hubtest.Version, "").StatusCode)
		p.Client.CloseIdleConnections()
		synctest.Wait()
		require.Empty(t, rec.Text())
	})
}

// A client that opens a connection over AMQP and leaves was refused nothing.
func TestAClientThatOnlyOpensAConnectionIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec hubtest.Recorder
		h, _ := hubtest.NewHub(t, &testbroker.Options{OnEvent: rec.Event})
		require.NoError(t, hubtest.DialPeer(t, h).Conn.Close())
		gone := hubtest.DialFrames(t, h)
		gone.Open(nil)
		require.NoError(t, gone.Conn.Close())
		synctest.Wait()
		require.Empty(t, rec.Text())

		stranger := hubtest.DialFrames(t, h)
		stranger.Open(&amqpwire.Open{ContainerID: "c", Hostname: "other.example.test"})
		hubtest.Want[*amqpwire.Close](stranger)
		require.NoError(t, stranger.Conn.Close())
		synctest.Wait()
		require.Len(t, rec.Text(), 1)
		require.Contains(t, rec.Text()[0], `#3 refused: com.microsoft:iot-hub-not-found-error: host name "other.`)
	})
}

// A device that subscribes to topics that are not its own, or sends a message that the hub rejects,
// stays connected: the line says what was refused.
func TestRefusedFiltersAndMessagesAreLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec hubtest.Recorder
		h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: rec.Event})
		w := hubtest.Login(t, h, d)
		require.Equal(t, []byte{0x80, 1}, w.Subscribe(1, "devices/dev-2/messages/devicebound/#",
			"devices/dev-1/messages/devicebound/#"))
		hubtest.AddDevice(t, h, "dev-2")
		other := hubtest.Registered(t, h, "dev-2")
		l := hubtest.LoginAMQP(t, h, other).Telemetry(other)
		require.Equal(t, "amqp:not-allowed", hubtest.Condition(t, l.Send(t.Context(), &amqp.Message{Value: int32(1)}, nil)))
		synctest.Wait()
		events := rec.Text()
		require.Len(t, events, 4)
		require.Equal(t, `#1 dev-1 refused "devices/dev-2/messages/devicebound/#" with code 128: the hub has no such topics `+
			`for this identity`, events[1])
		require.Contains(t, events[3], `#2 dev-2 refused "/devices/dev-2/messages/events": amqp:not-allowed: body that is a `+
			`value of the type int32`)
	})
}

// A probe connects, perhaps shakes hands, and says nothing. Nobody was refused.
func TestAClientThatSaysNothingIsNotRefused(t *testing.T) {
	for _, port := range []testbroker.Port{testbroker.PortMQTT, testbroker.PortMQTTS, testbroker.PortAMQP,
		testbroker.PortAMQPS, testbroker.PortHTTP, testbroker.PortHTTPS} {
		for name, o := range map[string]testbroker.Options{"hub": {}, "broker": {Broker: &testbroker.BrokerOptions{}}} {
			hubtest.RunBubble(t, port.String()+" "+name, func(t *testing.T) {
				var rec hubtest.Recorder
				o.OnEvent = rec.Event
				h, _ := hubtest.NewHub(t, &o)
				shaken := 0
				for _, reset := range []bool{false, true} {
					probe(t, h, port, false, reset)
					if strings.HasSuffix(port.String(), "TLS") || port == testbroker.PortHTTPS {
						probe(t, h, port, true, reset)
						shaken++
					}
				}
				for _, line := range rec.Text() {
					require.Contains(t, line, " silent: if the client does not trust the certificate, give it")
				}
				require.Len(t, rec.Text(), shaken)
			})
		}
	}
}

func probe(t *testing.T, h *testbroker.Hub, port testbroker.Port, shake, reset bool) {
	raw := hubtest.DialPort(t, h, port)
	if shake {
		require.NoError(t, tls.Client(raw, h.ClientTLS()).HandshakeContext(t.Context()))
	}
	synctest.Wait()
	if reset {
		raw.(interface{ Reset() }).Reset()
	}
	require.NoError(t, raw.Close())
	synctest.Wait()
}

// A client that begins to speak and disconnects was not served: that is a line.
func TestAClientThatStopsInTheMiddleIsALine(t *testing.T) {
	for port, half := range map[testbroker.Port]string{
		testbroker.PortMQTT: "\x10\x20\x00\x04MQ", testbroker.PortAMQP: "AMQ", testbroker.PortHTTP: "GET /de",
	} {
		synctest.Test(t, func(t *testing.T) {
			var rec hubtest.Recorder
			h, _ := hubtest.NewHub(t, &testbroker.Options{OnEvent: rec.Event})
			raw := hubtest.DialPort(t, h, port)
			_, err := raw.Write([]byte(half))
			require.NoError(t, err)
			synctest.Wait()
			require.NoError(t, raw.Close())
			synctest.Wait()
			require.Len(t, rec.Text(), 1, port)
			require.Contains(t, rec.Text()[0], "#1 refused: ")
		})
	}
}

// A client that does not trust the certificate ends the handshake: the line says what it needs.
func TestAClientThatDoesNotTrustTheHubIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec hubtest.Recorder
		h, _ := hubtest.NewHub(t, &testbroker.Options{OnEvent: rec.Event})
		for _, port := range []testbroker.Port{testbroker.PortMQTTS, testbroker.PortAMQPS, testbroker.PortHTTPS} {
			raw := hubtest.DialPort(t, h, port)
			require.Error(t, tls.Client(raw, &tls.Config{ServerName: "localhost"}).HandshakeContext(t.Context()))
			require.NoError(t, raw.Close())
		}
		synctest.Wait()
		require.Len(t, rec.Text(), 3)
		for _, line := range rec.Text() {
			require.Contains(t, line, "remote error: tls: bad certificate: TLS handshake: if the client does not trust the "+
				"certificate, give it the hub's authority")
		}
	})
}
