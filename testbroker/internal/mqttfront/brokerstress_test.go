package mqttfront_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// TestBrokerStress has clients of both versions that connect, take each other's sessions over,
// send, receive and leave in any way, while the test does everything that a hub can do. It is for
// the race detector and for deadlocks. In the end a client receives what waits for it.
func TestBrokerStress(t *testing.T) {
	h, err := testbroker.New(&testbroker.Options{Broker: &testbroker.BrokerOptions{CommandQoS: 2, ReceiveMaximum: 20},
		Keep: 100})
	require.NoError(t, err)
	defer h.Close()
	const devices = 3
	var all [devices]hubdata.Device
	for i := range all {
		all[i], err = h.AddDevice(fmt.Sprint("dev-", i))
		require.NoError(t, err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 3 * devices {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for {
				select {
				case <-stop:
					return
				default:
					stressClient(h, all[i%devices], rng)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(2, 2))
	pace := time.NewTicker(100 * time.Microsecond)
	defer pace.Stop()
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
		id := all[rng.IntN(devices)].ID
		switch rng.IntN(12) {
		case 0:
			h.Drop(id)
		case 1:
			h.CloseConnections(id)
		case 2:
			h.PurgeC2D(id)
		case 3:
			h.SetEnabled(id, false)
			h.SetEnabled(id, true)
		case 4:
			h.Session(id)
		case 5:
			kinds := append(fault.BrokerKinds(), fault.SlowPuback, fault.ForgetSession, fault.SlowSuback, fault.HalfOpen)
			h.Inject(fault.Fault{Kind: kinds[rng.IntN(len(kinds))], Device: id, Times: -1, Delay: time.Millisecond,
				For: time.Millisecond})
		case 6:
			if rng.IntN(20) == 0 {
				h.Reset()
			}
		default:
			h.SendC2D(id, hubdata.C2D{Body: []byte("x")})
		}
		<-pace.C
	}
	close(stop)
	h.Drop("")
	wg.Wait()
	h.Reset()

	d := all[0]
	c := loginPlain(t, h, d, 5)
	c.subscribe(packets.Subscription{Filter: "devices/dev-0/down/#", Qos: 1})
	require.NoError(t, h.SendC2D(d.ID, hubdata.C2D{Body: []byte("end")}))
	require.Equal(t, "end", string(c.expect(packets.Publish).Payload))
}

// stressClient is one connection.
func stressClient(h *testbroker.Hub, d hubdata.Device, rng *rand.Rand) {
	conn, err := h.Dial(testbroker.PortMQTT)(context.Background(), "tcp", "broker")
	if err != nil {
		return
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
	version := byte(4 + rng.IntN(2))
	connect := plainConnect(d, version)
	connect.Connect.Clean = rng.IntN(3) == 0
	connect.Properties = packets.Properties{SessionExpiryInterval: uint32(rng.IntN(3)), SessionExpiryIntervalFlag: true}
	connect.Connect.WillFlag, connect.Connect.WillTopic = true, "devices/"+d.ID+"/up"
	connect.Connect.WillProperties.WillDelayInterval = uint32(rng.IntN(2))
	send := func(pk packets.Packet, encode func(*packets.Packet, *bytes.Buffer) error) {
		var b bytes.Buffer
		pk.ProtocolVersion = version
		if encode(&pk, &b) == nil {
			conn.Write(b.Bytes())
		}
	}
	send(connect, (*packets.Packet).ConnectEncode)
	send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Subscribe, Qos: 1}, PacketID: 1,
		Filters: packets.Subscriptions{{Filter: "devices/" + d.ID + "/down/#", Qos: byte(rng.IntN(3))}}},
		(*packets.Packet).SubscribeEncode)
	for i := range rng.IntN(20) {
		send(message(uint16(i+2), "devices/"+d.ID+"/up", "x"), (*packets.Packet).PublishEncode)
	}
	in := bufio.NewReader(conn)
	for range rng.IntN(40) {
		first, err := in.ReadByte()
		if err != nil {
			return
		}
		n, _, err := packets.DecodeLength(in)
		body := make([]byte, n)
		if _, e := io.ReadFull(in, body); e != nil || err != nil {
			return
		}
		switch first >> 4 {
		case packets.Publish:
			pk := packets.Packet{ProtocolVersion: version}
			if pk.FixedHeader.Decode(first) != nil || pk.PublishDecode(body) != nil || pk.FixedHeader.Qos == 0 {
				continue
			}
			typ := []byte{0, packets.Puback, packets.Pubrec}[pk.FixedHeader.Qos]
			conn.Write([]byte{typ << 4, 2, byte(pk.PacketID >> 8), byte(pk.PacketID)})
		case packets.Pubrel:
			conn.Write([]byte{packets.Pubcomp << 4, 2, body[0], body[1]})
		}
	}
	if rng.IntN(2) == 0 {
		conn.Write([]byte{0xe0, 0})
	}
}
