package mqttfront_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
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

// FuzzNext sends bytes to a hub with the MQTT v5 profile after the CONNECT, and a message of any
// type with any body to a feature: the hub must end the connection or wait for more, and serve the
// next one.
func FuzzNext(f *testing.F) {
	for _, all := range packets.TPacketData {
		for _, p := range all {
			f.Add(p.RawBytes, "telemetry", "telemetry:1", []byte("x"))
		}
	}
	for typ, m := range map[string]nextwire.Message{
		nextwire.TypeBirth:         &nextwire.Birth{PushDesired: true, PushReported: true},
		nextwire.TypeTwinGet:       &nextwire.TwinGet{Sections: nextwire.SectionBoth},
		nextwire.TypeReportedPatch: &nextwire.ReportedPatch{Payload: []byte(`{"a":1}`)},
		nextwire.TypeProbeAck:      &nextwire.ProbeAck{Ready: &nextwire.Ready{ID: readyID}},
		nextwire.TypeResult:        &nextwire.Result{Status: 200},
		nextwire.TypeAbandon:       &nextwire.Abandon{Reason: 1},
	} {
		for _, feature := range []string{"presence", "twin", "methods"} {
			f.Add([]byte{0xc0, 0}, feature, typ, nextwire.Append(nil, m))
		}
	}
	f.Fuzz(func(t *testing.T, p []byte, feature, typ string, body []byte) {
		h, err := testbroker.New(&testbroker.Options{MQTTv5: &testbroker.MQTTv5Options{Topics: []string{"a/{deviceId}/*"}}})
		require.NoError(t, err)
		defer h.Close()
		hubtest.AddDevice(t, h, "dev-1")
		d := loginNext(t, h, 1)
		go h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "m", ConnectTimeout: time.Millisecond,
			ResponseTimeout: time.Millisecond})
		if !strings.ContainsAny(feature+typ, "+#\x00") && len(feature+typ) < 1000 {
			d.sayBytes(feature, strings.ToValidUTF8(typ, ""), d.request(), body)
		}
		d.write(p)
		d.conn.(interface{ CloseWrite() error }).CloseWrite()
		d.conn.SetReadDeadline(time.Now().Add(hubtest.WaitLimit))
		if _, err := io.Copy(io.Discard, d.conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		for _, m := range h.Messages() {
			own := m.Topic == "ih/dev-1/srv/telemetry" || strings.HasPrefix(m.Topic, "a/dev-1/")
			if m.DeviceID != "dev-1" || m.QoS > 1 || !own {
				t.Errorf("%+v", m)
			}
		}
		again, _ := dialNext(t, h, 2, func(pk *packets.Packet) { pk.Connect.Clean = true })
		again.ping()
	})
}

// TestNextStress has clients that connect, take each other's sessions over, say everything that a
// device can say and leave, while the test does everything that a hub can do. It is for the race
// detector and for deadlocks. In the end a device is born and gets what is new.
func TestNextStress(t *testing.T) {
	h, err := testbroker.New(&testbroker.Options{MQTTv5: &testbroker.MQTTv5Options{}, Keep: 100})
	require.NoError(t, err)
	defer h.Close()
	const devices = 2
	for i := range devices {
		hubtest.AddDevice(t, h, fmt.Sprint("dev-", i+1))
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range 3 * devices {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for ctx.Err() == nil {
				stressNext(h, fmt.Sprint("dev-", i%devices+1), rng)
			}
		})
	}
	rng := rand.New(rand.NewPCG(2, 2))
	pace := time.NewTicker(100 * time.Microsecond)
	defer pace.Stop()
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); <-pace.C {
		id := fmt.Sprint("dev-", rng.IntN(devices)+1)
		switch rng.IntN(12) {
		case 0:
			h.Drop(id)
		case 1:
			h.CloseConnections(id)
		case 2:
			h.SetEnabled(id, false)
			h.SetEnabled(id, true)
		case 3:
			h.Session(id)
		case 4:
			kinds := append(fault.MQTTv5Kinds(), fault.SlowDesired, fault.SlowMethod, fault.ForgetSession, fault.HalfOpen)
			h.Inject(fault.Fault{Kind: kinds[rng.IntN(len(kinds))], Device: id, Times: -1, Delay: time.Millisecond,
				For: time.Millisecond})
		case 5:
			if rng.IntN(20) == 0 {
				h.Reset()
			}
		case 6, 7, 8:
			wg.Go(func() {
				h.CallMethod(ctx, id, hubdata.MethodCall{Name: "m", ConnectTimeout: 5 * time.Millisecond,
					ResponseTimeout: 5 * time.Millisecond})
			})
		default:
			h.PatchDesired(id, `{"a":1}`)
		}
	}
	stop()
	h.Drop("")
	wg.Wait()
	h.Reset()

	d := loginNext(t, h, 1)
	hubtest.PatchDesired(t, h, "dev-1", `{"a":1}`)
	require.Equal(t, nextwire.DesiredPatch{Version: 2, Payload: []byte(`{"a":1}`)}, d.patched())
}

// stressNext is one connection.
func stressNext(h *testbroker.Hub, device string, rng *rand.Rand) {
	conn, err := h.Dial(testbroker.PortMQTT)(context.Background(), "tcp", "hub")
	if err != nil {
		return
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(50 * time.Millisecond))
	send := func(pk packets.Packet, encode func(*packets.Packet, *bytes.Buffer) error) {
		var b bytes.Buffer
		pk.ProtocolVersion = 5
		if encode(&pk, &b) == nil {
			conn.Write(b.Bytes())
		}
	}
	say := func(feature, typ string, id []byte, m nextwire.Message) {
		pk := message(uint16(rng.IntN(100)+2), "ih/"+device+"/srv/"+feature, string(nextwire.Append(nil, m)))
		pk.Properties.CorrelationData = id
		pk.Properties.User = []packets.UserProperty{{Key: "type", Val: typ}}
		send(pk, (*packets.Packet).PublishEncode)
	}
	nonce := nextwire.ID{byte(rng.IntN(256))}
	send(nextConnect(device, nonce), (*packets.Packet).ConnectEncode)
	send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Subscribe, Qos: 1}, PacketID: 1,
		Filters: packets.Subscriptions{{Filter: "ih/" + device + "/dev/#", Qos: 1}}}, (*packets.Packet).SubscribeEncode)
	say("presence", nextwire.TypeBirth, nonce[:], &nextwire.Birth{PushDesired: true})
	say("twin", nextwire.TypeTwinGet, nonce[:], &nextwire.TwinGet{Sections: nextwire.SectionBoth})
	say("twin", nextwire.TypeReportedPatch, nonce[:], &nextwire.ReportedPatch{Payload: []byte(`{"a":1}`)})
	say("telemetry", nextwire.TypeTelemetry, nil, &nextwire.Result{})
	correlation := []byte{9, 0, 16} // begins the correlation data of a message
	in := make([]byte, 4096)
	for range rng.IntN(6) {
		n, err := conn.Read(in)
		if err != nil {
			return
		}
		if _, id, ok := bytes.Cut(in[:n], correlation); ok && len(id) >= 16 {
			say("methods", nextwire.TypeProbeAck, id[:16], &nextwire.ProbeAck{Ready: &nextwire.Ready{ID: readyID}})
			say("methods", nextwire.TypeResult, id[:16], &nextwire.Result{Status: 200})
		}
		send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Puback}, PacketID: uint16(rng.IntN(5) + 1)},
			(*packets.Packet).PubackEncode)
	}
}
