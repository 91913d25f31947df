package mqttfront_test

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker"
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
