package interop

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// authenticator is enhanced authentication with a key of the device.
type authenticator struct{ key string }

func (a authenticator) Authenticate(asked *paho.Auth) *paho.Auth {
	return &paho.Auth{ReasonCode: 0x18, Properties: &paho.AuthProperties{AuthMethod: asked.Properties.AuthMethod,
		AuthData: []byte(a.key)}}
}

func (authenticator) Authenticated() {}

// TestPahoWithMQTT5AtAPlainBroker uses the client paho.golang at a hub that is a plain broker:
// properties both ways, QoS 2, reason codes, limits and enhanced authentication with another one
// on the connection.
func TestPahoWithMQTT5AtAPlainBroker(t *testing.T) {
	h, d := hubfixture.OpenDevice(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{
		CommandQoS: 2, ReceiveMaximum: 10, KeepAlive: 20 * time.Second, TopicAliases: 5, SessionExpiry: time.Hour,
	}}, deviceID)
	addr, err := h.Listen(testbroker.PortMQTT, "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr.String())
	require.NoError(t, err)
	got, ended := make(chan *paho.Publish, 10), make(chan *paho.Disconnect, 1)
	c := paho.NewClient(paho.ClientConfig{
		Conn: packets.NewThreadSafeConn(conn), AuthHandler: authenticator{d.PrimaryKey},
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(r paho.PublishReceived) (bool, error) {
			got <- r.Packet
			return true, nil
		}},
		OnServerDisconnect: func(e *paho.Disconnect) { ended <- e },
	})
	expiry := uint32(7200)
	ack, err := c.Connect(ctx, &paho.Connect{
		ClientID: deviceID, KeepAlive: 60, CleanStart: true,
		Properties: &paho.ConnectProperties{SessionExpiryInterval: &expiry, AuthMethod: testbroker.AuthMethod,
			RequestProblemInfo: true},
	})
	require.NoError(t, err)
	require.EqualValues(t, 20, *ack.Properties.ServerKeepAlive)
	require.EqualValues(t, 10, *ack.Properties.ReceiveMaximum)
	require.EqualValues(t, 3600, *ack.Properties.SessionExpiryInterval)
	require.EqualValues(t, 5, *ack.Properties.TopicAliasMaximum)

	up, down := "devices/"+deviceID+"/up", "devices/"+deviceID+"/down"
	text, alias := byte(1), uint16(3)
	for i, topic := range []string{up, ""} {
		_, err = c.Publish(ctx, &paho.Publish{QoS: 1, Topic: topic, Payload: []byte("21"),
			Properties: &paho.PublishProperties{
				ContentType: "text/plain", CorrelationData: []byte("c"), ResponseTopic: "answers", PayloadFormat: &text,
				TopicAlias: &alias, User: paho.UserProperties{{Key: "unit", Value: "C"}, {Key: "message-id", Value: "m"}},
			}})
		require.NoError(t, err)
		m := h.Messages()[i]
		require.Equal(t, []string{up, "text/plain", "c", "answers", "utf-8", "m"}, []string{m.Topic, m.ContentType,
			m.CorrelationID, m.ResponseTopic, m.ContentEncoding, m.MessageID})
		require.Equal(t, []hubdata.Property{{Name: "unit", Value: "C"}}, m.Properties)
	}
	refused, err := c.Publish(ctx, &paho.Publish{QoS: 1, Topic: "elsewhere", Payload: []byte("21")})
	require.Error(t, err)
	require.Equal(t, byte(0x87), refused.ReasonCode)

	_, err = c.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: down + "/#", QoS: 2}}})
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, h.SendC2D(deviceID, hubdata.C2D{MessageID: "c-1", ContentType: "text/plain", Body: []byte("now"),
			ResponseTopic: "answers", Properties: []hubdata.Property{{Name: "n", Value: "1"}}}))
		m := <-got
		require.Equal(t, []any{byte(2), down, "now", "text/plain", "answers", "1"}, []any{m.QoS, m.Topic, string(m.Payload),
			m.Properties.ContentType, m.Properties.ResponseTopic, m.Properties.User.Get("n")})
	}
	require.NoError(t, h.WaitC2D(ctx, deviceID, hubdata.C2DCompleted, 3))

	again, err := c.Authenticate(ctx, &paho.Auth{ReasonCode: 0x19, Properties: &paho.AuthProperties{
		AuthMethod: testbroker.AuthMethod, AuthData: []byte(d.SecondaryKey)}})
	require.NoError(t, err)
	require.True(t, again.Success)
	s, ok := h.Session(deviceID)
	require.True(t, ok)
	require.Equal(t, 2, s.Authentications)

	h.Inject(fault.Fault{Kind: fault.DisconnectOnPublish, Code: 0x9c, ServerReference: "other:1883", Description: "moved"})
	_, err = c.Publish(ctx, &paho.Publish{QoS: 1, Topic: up})
	require.Error(t, err)
	end := <-ended
	require.Equal(t, []any{byte(0x9c), "other:1883", "moved"}, []any{end.ReasonCode, end.Properties.ServerReference,
		end.Properties.ReasonString})
}
