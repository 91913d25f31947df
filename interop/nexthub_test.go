package interop

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// A profileDevice is a device of a hub with the MQTT v5 profile, on the client paho.golang.
type profileDevice struct {
	t      *testing.T
	client *paho.Client
	nonce  nextwire.ID
	got    chan *paho.Publish
	ended  chan *paho.Disconnect
}

// connectProfile connects with a certificate, subscribes and is born.
func connectProfile(t *testing.T, h *testbroker.Hub, addr string, cert tls.Certificate, nonce byte) *profileDevice {
	config := h.ClientTLS()
	config.Certificates = []tls.Certificate{cert}
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	d := &profileDevice{t: t, nonce: nextwire.ID{nonce}, got: make(chan *paho.Publish, 10),
		ended: make(chan *paho.Disconnect, 1)}
	d.client = paho.NewClient(paho.ClientConfig{
		Conn: packets.NewThreadSafeConn(conn), OnPublishReceived: []func(paho.PublishReceived) (bool, error){
			func(r paho.PublishReceived) (bool, error) {
				d.got <- r.Packet
				return true, nil
			}},
		OnServerDisconnect: func(e *paho.Disconnect) { d.ended <- e },
	})
	expiry := uint32(3600)
	_, err = d.client.Connect(t.Context(), &paho.Connect{
		ClientID: deviceID, KeepAlive: 30, UsernameFlag: true, Username: nextwire.UserName(d.nonce, "paho/1"),
		Properties: &paho.ConnectProperties{SessionExpiryInterval: &expiry},
	})
	require.NoError(t, err)
	_, err = d.client.Subscribe(t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{
		{Topic: nextwire.Filter(deviceID), QoS: 1}}})
	require.NoError(t, err)
	d.say(0, nextwire.FeaturePresence, nextwire.TypeBirth, d.nonce,
		&nextwire.Birth{PushDesired: true, PushReported: true})
	var ack nextwire.BirthAck
	require.Equal(t, d.nonce, d.hear(nextwire.FeaturePresence, nextwire.TypeBirthAck, &ack))
	var push nextwire.TwinPush
	require.Equal(t, d.nonce, d.hear(nextwire.FeatureTwin, nextwire.TypeTwinPush, &push))
	require.Equal(t, []uint64{ack.DesiredVersion, ack.ReportedVersion},
		[]uint64{push.Desired.Version, push.Reported.Version})
	return d
}

// say publishes a message to a feature.
func (d *profileDevice) say(qos byte, feature, typ string, id nextwire.ID, m nextwire.Message) {
	d.t.Helper()
	_, err := d.client.Publish(d.t.Context(), &paho.Publish{QoS: qos, Topic: nextwire.Up(deviceID, feature),
		Payload: nextwire.Append(nil, m), Properties: &paho.PublishProperties{CorrelationData: id[:],
			User: paho.UserProperties{{Key: nextwire.PropertyType, Value: typ}}}})
	require.NoError(d.t, err)
}

// hear reads a message of the hub and returns its correlation data.
func (d *profileDevice) hear(feature, typ string, m nextwire.Message) nextwire.ID {
	d.t.Helper()
	select {
	case p := <-d.got:
		require.Equal(d.t, []string{nextwire.Down(deviceID, feature), typ},
			[]string{p.Topic, p.Properties.User.Get(nextwire.PropertyType)})
		require.NoError(d.t, nextwire.Decode(p.Payload, m))
		id, ok := nextwire.ParseID(p.Properties.CorrelationData)
		require.True(d.t, ok)
		return id
	case <-time.After(waitLimit):
		require.Fail(d.t, "no message", typ)
		return nextwire.ID{}
	}
}

// report sends a patch of reported properties.
func (d *profileDevice) report(ifMatch uint64, payload string) (r nextwire.PatchResponse) {
	d.t.Helper()
	id := nextwire.ID{0xaa}
	d.say(0, nextwire.FeatureTwin, nextwire.TypeReportedPatch, id,
		&nextwire.ReportedPatch{IfMatch: ifMatch, Payload: []byte(payload)})
	require.Equal(d.t, id, d.hear(nextwire.FeatureTwin, nextwire.TypePatchResponse, &r))
	return r
}

// TestPahoAtAHubWithTheMQTTv5Profile does with the client paho.golang what the tests of the
// service's own clients do with their stub of such a hub.
func TestPahoAtAHubWithTheMQTTv5Profile(t *testing.T) {
	cert := testbroker.NewClientCert(deviceID, time.Time{}, time.Time{})
	h, err := testbroker.New(&testbroker.Options{
		MQTTv5: &testbroker.MQTTv5Options{Topics: []string{"site/{deviceId}/up"}},
	})
	require.NoError(t, err)
	defer h.Close()
	_, err = h.AddDeviceX509(deviceID, testbroker.Thumbprint(cert.Leaf))
	require.NoError(t, err)
	addr, err := h.Listen(testbroker.PortMQTTS, "127.0.0.1:0")
	require.NoError(t, err)
	_, err = h.PatchDesired(deviceID, `{"fanSpeed":43}`)
	require.NoError(t, err)
	d := connectProfile(t, h, addr.String(), cert, 1)

	t.Run("twin", func(t *testing.T) {
		d.say(0, nextwire.FeatureTwin, nextwire.TypeTwinGet, nextwire.ID{1},
			&nextwire.TwinGet{Sections: nextwire.SectionBoth})
		var got nextwire.GetResponse
		require.Equal(t, nextwire.ID{1}, d.hear(nextwire.FeatureTwin, nextwire.TypeGetResponse, &got))
		require.Equal(t, nextwire.GetResponse{DesiredVersion: 2, ReportedVersion: 1, Desired: []byte(`{"fanSpeed":43}`),
			Reported: []byte(`{}`)}, got)
		require.Equal(t, nextwire.PatchResponse{Result: nextwire.PatchOK, Version: 2}, d.report(1, `{"a":1}`))
		require.Equal(t, nextwire.PatchResponse{Result: nextwire.PatchVersionMismatch, Version: 2}, d.report(99, `{"a":2}`))
		twin, err := h.Twin(deviceID)
		require.NoError(t, err)
		require.JSONEq(t, `{"a":1}`, string(twin.Reported))
		_, err = h.PatchDesired(deviceID, `{"fanSpeed":44}`)
		require.NoError(t, err)
		var p nextwire.DesiredPatch
		require.Equal(t, d.nonce, d.hear(nextwire.FeatureTwin, nextwire.TypeDesiredPatch, &p))
		require.Equal(t, nextwire.DesiredPatch{Version: 3, Payload: []byte(`{"fanSpeed":44}`)}, p)
	})
	t.Run("methods", func(t *testing.T) {
		call := func(answer func(id nextwire.ID)) (r hubdata.MethodResult, err error) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				r, err = h.CallMethod(t.Context(), deviceID, hubdata.MethodCall{Name: "echo", Payload: []byte(`"hi"`)})
			}()
			var p nextwire.Probe
			id := d.hear(nextwire.FeatureMethods, nextwire.TypeProbe, &p)
			require.Equal(t, nextwire.Probe{Method: "echo", ResponseTimeout: 30}, p)
			answer(id)
			<-done
			return r, err
		}
		ready := []byte("0123456789abcdef")
		got, err := call(func(id nextwire.ID) {
			d.say(1, nextwire.FeatureMethods, nextwire.TypeProbeAck, id, &nextwire.ProbeAck{Ready: &nextwire.Ready{ID: ready}})
			var e nextwire.Exec
			require.Equal(t, id, d.hear(nextwire.FeatureMethods, nextwire.TypeExec, &e))
			require.Equal(t, ready, e.ReadyID)
			d.say(1, nextwire.FeatureMethods, nextwire.TypeResult, id, &nextwire.Result{Status: 200, Body: e.Params})
		})
		require.NoError(t, err)
		require.Equal(t, hubdata.MethodResult{Status: 200, Payload: []byte(`"hi"`)}, got)
		_, err = call(func(id nextwire.ID) {
			d.say(1, nextwire.FeatureMethods, nextwire.TypeProbeAck, id,
				&nextwire.ProbeAck{Rejected: &nextwire.Rejected{Reason: nextwire.RejectDeviceBusy}})
		})
		require.ErrorContains(t, err, "reason 3")
	})
	t.Run("messages", func(t *testing.T) {
		for _, topic := range []string{nextwire.Up(deviceID, nextwire.FeatureTelemetry), "site/" + deviceID + "/up"} {
			_, err := d.client.Publish(t.Context(), &paho.Publish{QoS: 1, Topic: topic, Payload: []byte("21"),
				Properties: &paho.PublishProperties{ContentType: "text/plain", User: paho.UserProperties{
					{Key: "$.mid", Value: "m-1"}, {Key: "$.ce", Value: "utf-8"}}}})
			require.NoError(t, err)
			m := h.Messages()[h.Len()-1]
			require.Equal(t, []string{topic, "m-1", "utf-8", "text/plain"},
				[]string{m.Topic, m.MessageID, m.ContentEncoding, m.ContentType})
		}
		refused, err := d.client.Publish(t.Context(), &paho.Publish{QoS: 1, Topic: "site/other/up"})
		require.Error(t, err)
		require.Equal(t, byte(0x87), refused.ReasonCode)
	})
	t.Run("ends", func(t *testing.T) {
		for i, code := range []byte{0x89, 0x8e, 0x87, 0x98} {
			h.Inject(fault.Fault{Kind: fault.DisconnectOnPublish, Code: code})
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			_, err := d.client.Publish(ctx, &paho.Publish{QoS: 1, Topic: "site/" + deviceID + "/up"})
			cancel()
			require.Error(t, err)
			require.Equal(t, code, (<-d.ended).ReasonCode)
			require.NoError(t, h.Wait(t.Context(), func([]hubdata.Message) bool { return h.Connections("") == 0 }))
			d = connectProfile(t, h, addr.String(), cert, byte(i+2))
		}
		last := connectProfile(t, h, addr.String(), cert, 9)
		require.Equal(t, byte(0x8e), (<-d.ended).ReasonCode)
		require.NoError(t, last.client.Disconnect(&paho.Disconnect{}))
	})
}
