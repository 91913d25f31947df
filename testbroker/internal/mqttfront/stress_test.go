package mqttfront_test

import (
	"bufio"
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// stress has clients of two devices that connect, take each other's sessions over and leave in any
// way, while the test does everything that a hub can do, with faults of some kinds. It is for the
// race detector and for deadlocks.
func stress(t *testing.T, o *testbroker.Options, length time.Duration, kinds []fault.Kind,
	client func(p *stressPeer, d hubdata.Device)) (*testbroker.Hub, hubdata.Device) {
	o.Keep = 100
	h, first := hubtest.NewHub(t, o)
	all := []hubdata.Device{first, hubtest.AddDevice(t, h, "dev-2")}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var wg sync.WaitGroup
	for i := range 4 * len(all) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for ctx.Err() == nil {
				conn, err := h.Dial(testbroker.PortMQTT)(context.Background(), "tcp", "hub")
				if err != nil {
					continue
				}
				conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
				client(&stressPeer{Conn: conn, in: bufio.NewReader(conn), rng: rng}, all[i%len(all)])
				conn.Close()
			}
		})
	}
	rng := rand.New(rand.NewPCG(2, 2))
	pace := time.NewTicker(100 * time.Microsecond)
	defer pace.Stop()
	for end := time.Now().Add(length); time.Now().Before(end); <-pace.C {
		id := all[rng.IntN(len(all))].ID
		switch rng.IntN(16) {
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
			h.Inject(fault.Fault{Kind: kinds[rng.IntN(len(kinds))], Device: id, Times: -1, Delay: time.Millisecond,
				For: time.Millisecond})
		case 6:
			if rng.IntN(20) == 0 {
				h.Reset()
			}
		case 7, 8, 9:
			wg.Go(func() {
				h.CallMethod(ctx, id, hubdata.MethodCall{Name: "m", ConnectTimeout: 5 * time.Millisecond,
					ResponseTimeout: 5 * time.Millisecond})
			})
		case 10, 11, 12:
			h.PatchDesired(id, `{"a":1}`)
		default:
			h.SendC2D(id, hubdata.C2D{Body: []byte("x")})
		}
	}
	stop()
	h.Drop("")
	wg.Wait()
	h.Reset()
	return h, first
}

// A stressPeer is one connection of a client under stress. A failure to write shows in the next
// read.
type stressPeer struct {
	net.Conn
	in      *bufio.Reader
	rng     *rand.Rand
	version byte
}

func (p *stressPeer) send(pk packets.Packet) {
	if b, err := encode(pk, p.version); err == nil {
		p.Write(b)
	}
}

func (p *stressPeer) subscribe(filter string, qos byte) {
	p.send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Subscribe}, PacketID: 1,
		Filters: packets.Subscriptions{{Filter: filter, Qos: qos}}})
}

func (p *stressPeer) ack(typ byte, id uint16) {
	p.send(packets.Packet{FixedHeader: packets.FixedHeader{Type: typ}, PacketID: id})
}

// In the end a client receives what waits for it.
func TestBrokerStress(t *testing.T) {
	kinds := append(fault.BrokerKinds(), fault.SlowPuback, fault.ForgetSession, fault.SlowSuback, fault.HalfOpen)
	o := &testbroker.Options{Broker: &testbroker.BrokerOptions{CommandQoS: 2, ReceiveMaximum: 20}}
	h, d := stress(t, o, 1500*time.Millisecond, kinds, func(p *stressPeer, d hubdata.Device) {
		p.version = byte(4 + p.rng.IntN(2))
		connect := plainConnect(d, p.version)
		connect.Connect.Clean = p.rng.IntN(3) == 0
		connect.Properties = packets.Properties{SessionExpiryInterval: uint32(p.rng.IntN(3)),
			SessionExpiryIntervalFlag: true}
		connect.Connect.WillFlag, connect.Connect.WillTopic = true, "devices/"+d.ID+"/up"
		connect.Connect.WillProperties.WillDelayInterval = uint32(p.rng.IntN(2))
		p.send(connect)
		p.subscribe("devices/"+d.ID+"/down/#", byte(p.rng.IntN(3)))
		for i := range p.rng.IntN(20) {
			p.send(message(uint16(i+2), "devices/"+d.ID+"/up", "x"))
		}
		for range p.rng.IntN(40) {
			pk, err := readPacket(p.in, p.version)
			switch typ := pk.FixedHeader.Type; {
			case err != nil:
				return
			case typ == packets.Pubrel:
				p.ack(packets.Pubcomp, pk.PacketID)
			case typ == packets.Publish && pk.FixedHeader.Qos > 0:
				p.ack([]byte{packets.Puback, packets.Pubrec}[pk.FixedHeader.Qos-1], pk.PacketID)
			}
		}
		if p.rng.IntN(2) == 0 {
			p.send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Disconnect}})
		}
	})
	c := loginPlain(t, h, d, 5)
	c.subscribe(packets.Subscription{Filter: "devices/dev-1/down/#", Qos: 1})
	require.NoError(t, h.SendC2D(d.ID, hubdata.C2D{Body: []byte("end")}))
	require.Equal(t, "end", string(c.expect(packets.Publish).Payload))
}

// In the end a device is born and gets what is new.
func TestNextStress(t *testing.T) {
	kinds := append(fault.MQTTv5Kinds(), fault.SlowDesired, fault.SlowMethod, fault.ForgetSession, fault.HalfOpen)
	o := &testbroker.Options{MQTTv5: &testbroker.MQTTv5Options{}}
	h, _ := stress(t, o, 500*time.Millisecond, kinds, func(p *stressPeer, d hubdata.Device) {
		p.version = 5
		say := func(feature, typ string, id []byte, m nextwire.Message) {
			pk := message(uint16(p.rng.IntN(100)+2), "ih/"+d.ID+"/srv/"+feature, string(nextwire.Append(nil, m)))
			pk.Properties.CorrelationData = id
			pk.Properties.User = []packets.UserProperty{{Key: "type", Val: typ}}
			p.send(pk)
		}
		nonce := nextwire.ID{byte(p.rng.IntN(256))}
		p.send(nextConnect(d.ID, nonce))
		p.subscribe("ih/"+d.ID+"/dev/#", 1)
		say("presence", nextwire.TypeBirth, nonce[:], &nextwire.Birth{PushDesired: true})
		say("twin", nextwire.TypeTwinGet, nonce[:], &nextwire.TwinGet{Sections: nextwire.SectionBoth})
		say("twin", nextwire.TypeReportedPatch, nonce[:], &nextwire.ReportedPatch{Payload: []byte(`{"a":1}`)})
		say("telemetry", nextwire.TypeTelemetry, nil, &nextwire.Result{})
		for range p.rng.IntN(12) {
			pk, err := readPacket(p.in, p.version)
			if err != nil {
				return
			}
			if id := pk.Properties.CorrelationData; id != nil {
				say("methods", nextwire.TypeProbeAck, id, &nextwire.ProbeAck{Ready: &nextwire.Ready{ID: readyID}})
				say("methods", nextwire.TypeResult, id, &nextwire.Result{Status: 200})
			}
			p.ack(packets.Puback, uint16(p.rng.IntN(5)+1))
		}
	})
	d := loginNext(t, h, 1)
	hubtest.PatchDesired(t, h, "dev-1", `{"a":1}`)
	require.Equal(t, nextwire.DesiredPatch{Version: 2, Payload: []byte(`{"a":1}`)}, d.patched())
}
