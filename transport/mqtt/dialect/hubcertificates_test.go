package dialect_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

func TestRequestsForCertificates(t *testing.T) {
	creds := transport.Credentials{Host: "h", DeviceID: "d"}
	s, hello, err := dialect.Hub.Session(&dialect.Config{Creds: &creds, Certificates: true, Agent: "a b"})
	require.NoError(t, err)
	require.Equal(t, "h/d/?api-version=2025-08-01-preview&DeviceClientType=a%20b", hello.UserName)
	q := &transport.Request{Op: transport.OpIssue, Ref: []byte("r-001")}
	topic, qos, ok := s.AppendRequest([]byte("x"), q)
	require.True(t, ok)
	require.EqualValues(t, 1, qos)
	require.Equal(t, "x$iothub/credentials/POST/issueCertificate/?$rid=r-001", string(topic))
	require.Equal(t, []dialect.Filter{{Topic: "$iothub/credentials/res/#", QoS: 1}},
		s.Filters(transport.FeatureCertificates))
	require.Equal(t, hubSession(t, dialect.HubTwinAndMethods,
		creds).Filters(transport.FeatureTwin|transport.FeatureMessages),
		s.Filters(transport.FeatureTwin|transport.FeatureMessages))
	for _, small := range []dialect.Dialect{dialect.HubMessages, dialect.HubTwinAndMethods} {
		s, hello, err := small.Session(&dialect.Config{Creds: &creds, Certificates: true, Agent: "a b"})
		require.NoError(t, err)
		require.Equal(t, "h/d/?api-version=2021-04-12&DeviceClientType=a%20b", hello.UserName, "without requests for them")
		_, _, ok := s.AppendRequest(nil, q)
		require.False(t, ok)
		require.Empty(t, s.Filters(transport.FeatureCertificates))
	}
}

func TestAnswersAboutCertificates(t *testing.T) {
	hub := hubSession(t, dialect.Hub, transport.Credentials{DeviceID: "d"})
	take := func(topic string) *transport.Delivery {
		s := takeBy(hub, topic, "{}")
		require.Nil(t, s.reply)
		return s.delivery
	}
	for topic, id := range map[string]string{"200/?$rid=r-001": "r-001", "202/?a=b&$rid=r-001&c=d": "r-001",
		"400/r-001": "r-001"} {
		d := take("$iothub/credentials/res/" + topic)
		require.Equal(t, transport.FeatureCertificates, d.Kind)
		require.Equal(t, topic[:3], string(d.Name))
		require.Equal(t, id, d.Msg.CorrelationID)
		require.Equal(t, "{}", string(d.Msg.Body))
		require.Equal(t, []byte{0x12, 0x34}, d.Ref)
		require.True(t, d.Redelivered)
	}
	for _, bad := range []string{"", "200", "200/", "200/?", "200/?$rid=", "200/?rid=x", "x/?$rid=1", "99/?$rid=1",
		"1000/?$rid=1", "-200/?$rid=1"} {
		require.Nil(t, take("$iothub/credentials/res/"+bad), bad)
	}
	require.EqualValues(t, 16, takeBy(hub, "$iothub/twin/res/200/?$rid=16", "{}").id, "the twin's")
}
