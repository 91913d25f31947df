package sim_test

import (
	"context"
	"encoding/binary"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// A hub that calls methods or sends messages as fast as it can, and reads none of the answers,
// makes the client hold a bounded amount of memory, and then loses the connection.
func TestAHubThatFloodsAndReadsNothing(t *testing.T) {
	for _, with := range engines {
		if with.protocol != hubdata.MQTT || !with.twins || with.next {
			continue
		}
		for name, flood := range map[string]flood{
			"calls": {1 << 20, 8 << 20, func(i int, body []byte) []byte {
				return mqttPublish(0, "$iothub/methods/POST/echo/?$rid="+strconv.Itoa(i), 0, body)
			}},
			"calls of an unknown method": {1 << 20, 1 << 20, func(i int, body []byte) []byte {
				return mqttPublish(0, "$iothub/methods/POST/unknown/?$rid="+strconv.Itoa(i), 0, body)
			}},
			"messages": {4 << 10, 2 << 20, func(i int, body []byte) []byte {
				return mqttPublish(1, "devices/dev-1/messages/devicebound/x=y", uint16(1+i%60_000), body[:1])
			}},
		} {
			t.Run(with.name+"/"+name, func(t *testing.T) {
				with.skipVariant(t)
				testkit.Bubble(t, func(t *testing.T) { floodWithoutReading(t, with, flood) })
			})
		}
	}
}

// flood is a packet that a hub repeats, and the memory that it may cost the client. The client may
// close the connection after the least number of bytes: with room for few messages it takes further
// ones on the next connection.
type flood struct {
	least  int
	most   int64
	packet func(i int, body []byte) []byte
}

func floodWithoutReading(t *testing.T, with engine, how flood) {
	network := memconn.NewNetwork("hub:1883")
	defer network.Close()
	creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1",
		Token: func(context.Context) (transport.Token, error) {
			return transport.Token{Text: transport.Hide("SharedAccessSignature sr=x"), Fixed: true}, nil
		}}
	c, err := device.New(creds, with.make(creds, &way{Plaintext: true, Dial: network.DialContext}), nil)
	require.NoError(t, err)
	c.HandleMessages(func(context.Context, *transport.Message) error { return nil })
	defer func() { require.NoError(t, c.Close()) }()
	require.NoError(t, c.HandleMethod("echo",
		func(_ context.Context, m *device.MethodCall) (int, []byte) { return 200, m.Body }))

	flooding := make(chan net.Conn)
	go func() {
		hub, err := network.Accept()
		if err != nil {
			return
		}
		mqttServe(t, hub)
		flooding <- hub
	}()
	require.NoError(t, c.Start())
	hub := <-flooding
	defer hub.Close()

	const total = 16 << 20
	body := []byte(`"` + strings.Repeat("x", 3<<10) + `"`)
	_ = hub.SetWriteDeadline(time.Now().Add(time.Hour))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	most, sent := int64(0), 0
	for i := 0; sent < total && i < 100_000; i++ {
		n, err := hub.Write(how.packet(i, body))
		if sent += n; err != nil {
			break // the client closed the connection, as it may
		}
		if i%10_000 == 0 {
			synctest.Wait() // else what the client allocates during the collection counts, too
			runtime.GC()
			runtime.ReadMemStats(&after)
			most = max(most, int64(after.HeapAlloc)-int64(before.HeapAlloc))
		}
	}
	require.Greater(t, sent, how.least)
	synctest.Wait()
	runtime.GC()
	runtime.ReadMemStats(&after)
	most = max(most, int64(after.HeapAlloc)-int64(before.HeapAlloc))
	require.Less(t, most, how.most, "of %d bytes that the hub has sent", sent)

	require.NotEqual(t, device.StateDisconnected, c.Status().State)
	time.Sleep(2 * time.Minute)
	require.Equal(t, device.StateDisconnectedRetrying, c.Status().State, "the hub accepts no data")
}

// mqttServe accepts CONNECT and two subscriptions, then returns.
func mqttServe(t *testing.T, hub net.Conn) {
	l := testkit.NewMQTTLink(t, hub)
	for subscribed := 0; subscribed < 2; {
		p, err := l.Next()
		if err != nil {
			t.Error(err)
			return
		}
		switch p.First >> 4 {
		case 1:
			_, _ = hub.Write([]byte{0x20, 2, 0, 0})
		case 8:
			filters := 0
			for rest := p.Body[2:]; len(rest) > 2; filters++ {
				rest = rest[2+binary.BigEndian.Uint16(rest)+1:]
			}
			_, _ = hub.Write(testkit.MQTTBytes(0x90, string(p.Body[:2]), string(make([]byte, filters))))
			subscribed += filters
		}
	}
}

func mqttPublish(qos byte, topic string, id uint16, body []byte) []byte {
	packetID := ""
	if qos > 0 {
		packetID = string([]byte{byte(id >> 8), byte(id)})
	}
	return testkit.MQTTBytes(0x30|qos<<1, testkit.MQTTText(topic), packetID, string(body))
}
