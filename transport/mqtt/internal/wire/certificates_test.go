package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

func TestRequestsForCertificates(t *testing.T) {
	q := &transport.Request{Op: transport.OpIssue, Ref: []byte("r-001")}
	require.Equal(t, "x$iothub/credentials/POST/issueCertificate/?$rid=r-001",
		string(wire.AppendCertificateRequest([]byte("x"), q)))
	topics := wire.NewTopics(&transport.Credentials{DeviceID: "d"})
	require.Equal(t, []wire.Filter{{Topic: "$iothub/credentials/res/#", QoS: 1}},
		topics.AllFilters(nil, transport.Certificates))
	require.Equal(t, topics.Filters(nil, transport.Twin|transport.Messages),
		topics.AllFilters(nil, transport.Twin|transport.Messages))
	require.Equal(t, "h/d/?api-version="+wire.APIVersionCertificates+"&DeviceClientType=a%20b",
		wire.UserName(&transport.Credentials{Host: "h", DeviceID: "d"}, wire.APIVersionCertificates, "a b", ""))
}

func TestAnswersAboutCertificates(t *testing.T) {
	take := func(topic string) (*transport.Delivery, bool) {
		var in wire.Inbound
		s := &sink{}
		taken := in.TakeCertificate(s, topic, []byte("{}"), 0x1234, true)
		require.Nil(t, s.reply)
		return s.delivery, taken
	}
	for topic, id := range map[string]string{"200/?$rid=r-001": "r-001", "202/?a=b&$rid=r-001&c=d": "r-001",
		"400/r-001": "r-001"} {
		d, ok := take("$iothub/credentials/res/" + topic)
		require.True(t, ok)
		require.Equal(t, transport.Certificates, d.Kind)
		require.Equal(t, topic[:3], string(d.Name))
		require.Equal(t, id, d.Msg.CorrelationID)
		require.Equal(t, "{}", string(d.Msg.Body))
		require.Equal(t, []byte{0x12, 0x34}, d.Ref)
		require.True(t, d.Again)
	}
	for _, bad := range []string{"", "200", "200/", "200/?", "200/?$rid=", "200/?rid=x", "x/?$rid=1", "99/?$rid=1",
		"1000/?$rid=1", "-200/?$rid=1"} {
		d, ok := take("$iothub/credentials/res/" + bad)
		require.True(t, ok, bad)
		require.Nil(t, d, bad)
	}
	_, ok := take("$iothub/twin/res/200/?$rid=1")
	require.False(t, ok)
}
