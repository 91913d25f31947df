package dialect_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

var hubs = map[string]dialect.Dialect{"all": dialect.Hub, "twin and methods": dialect.HubTwinAndMethods,
	"messages": dialect.HubMessages}

func TestAHubsTopicsNameTheIdentity(t *testing.T) {
	for name, d := range hubs {
		for base, creds := range map[string]transport.Credentials{
			"devices/d%$1":        {DeviceID: "d%$1"},
			"devices/d/modules/m": {DeviceID: "d", ModuleID: "m"},
		} {
			s := hubSession(t, d, creds)
			m := &transport.Message{ID: "m-1", Retain: true, AtMostOnce: true}
			p, refused := s.Publication(m)
			require.Nil(t, refused)
			require.Equal(t, dialect.Publication{Msg: m, Topic: base + "/messages/events/", Suffix: 11, Retain: true,
				AtMostOnce: true}, p)
			require.Equal(t, "x%24.mid=m-1", string(s.AppendSuffix([]byte("x"), m)))
			if creds.ModuleID != "" && d == dialect.Hub {
				continue // it has inputs
			}
			require.Equal(t, []dialect.Filter{{Topic: base + "/messages/devicebound/#", QoS: 1}},
				s.Filters(transport.FeatureMessages), name)
			got := takeBy(s, base+"/messages/devicebound/%24.mid=m-2", "body").delivery
			require.Equal(t, transport.FeatureMessages, got.Kind)
			require.Equal(t, &transport.Message{ID: "m-2", Body: []byte("body")}, got.Msg)
			require.Equal(t, []byte{0x12, 0x34}, got.Ref)
			require.Equal(t, &sink{}, takeBy(s, "devices/d/messages/devicebound", ""))
		}
	}
}

func TestWhatAHubsConnectSays(t *testing.T) {
	for name, d := range hubs {
		will := &transport.Message{ID: "w", Body: []byte("gone")}
		_, hello, err := d.Session(&dialect.Config{Creds: &transport.Credentials{Host: "h", DeviceID: "d", ModuleID: "m"},
			Agent: "a b", ModelID: "dtmi:x;1", Will: will})
		require.NoError(t, err)
		require.Equal(t, dialect.Hello{
			ClientID: "d/m", UserName: "h/d/m/?api-version=2021-04-12&DeviceClientType=a%20b&model-id=dtmi%3Ax%3B1",
			Will:    dialect.Publication{Msg: will, Topic: "devices/d/modules/m/messages/events/", Suffix: 9},
			MaxSize: transport.MaxMessageSize,
		}, hello, name)
	}
}

func TestAHubTakesNoTopicsOfOthers(t *testing.T) {
	for name, d := range hubs {
		creds := transport.Credentials{Host: "h", DeviceID: "d"}
		for _, m := range []*transport.Message{{Topic: "t"}, {ResponseTopic: "t"}} {
			_, refused := hubSession(t, d, creds).Publication(m)
			require.ErrorIs(t, refused, transport.Unsupported, name)
			require.Equal(t, transport.ScopeOperation, refused.Scope)
			require.ErrorContains(t, refused, "leave the message's Topic and ResponseTopic empty")
			_, _, err := d.Session(&dialect.Config{Creds: &creds, Will: m})
			require.ErrorIs(t, err, transport.Invalid)
			require.ErrorContains(t, err, "options: Will: ")
		}
		_, _, err := d.Session(&dialect.Config{Creds: &creds, Properties: true})
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, "Protocol is MQTT 5, and a hub speaks 3.1.1")
		creds.UserName = "me"
		_, _, err = d.Session(&dialect.Config{Creds: &creds})
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, "credentials: UserName is set")
	}
}
