package sim_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/mqtt"
	mqttengine "github.com/hubline-iot/hubline/transport/mqtt/engine"
	"github.com/stretchr/testify/require"
)

// Over real TLS on loopback, unusable credentials end Open at once: a typed error, one attempt, no
// retry, no secret in the text.
func TestHopelessCredentialsEndOpenAtOnce(t *testing.T) {
	withEachEngine(t, hopelessCredentialsEndOpenAtOnce)
}

func hopelessCredentialsEndOpenAtOnce(t *testing.T, with engine) {
	hub, _ := with.openHub(t)
	addr, err := hub.Listen(ports[with.protocol].secure, "127.0.0.1:0")
	require.NoError(t, err)
	good := ""
	if !with.next {
		good = hub.ConnectionString("dev-1")
	}
	otherKey := base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))
	host := "HostName=" + hub.HostName()

	for _, tc := range []struct {
		name    string
		connect string
		tls     bool // trust the hub's certificate
		before  func(t *testing.T)
		kind    transport.Kind
		token   transport.Kind // the Kind if the hub answers a token that was put; zero: the same
		http    transport.Kind // over HTTP; zero: the same
	}{
		{"wrong key", host + ";DeviceId=dev-1;SharedAccessKey=" + otherKey, true, nil, transport.Unauthorized, 0, 0},
		{"unknown device", host + ";DeviceId=dev-2;SharedAccessKey=" + otherKey, true, nil, transport.Unauthorized,
			transport.NotFound, transport.NotFound},
		{"disabled device", good, true, func(t *testing.T) {
			require.NoError(t, hub.SetEnabled("dev-1", false))
			t.Cleanup(func() { require.NoError(t, hub.SetEnabled("dev-1", true)) })
		}, transport.Unauthorized, 0, transport.Forbidden},
		{"certificate of nobody we know", good, false, nil, transport.Untrusted, 0, 0},
		{"certificate for another host", good, true, func(t *testing.T) {
			require.NoError(t, hub.PresentName("other.example.test"))
			t.Cleanup(func() { require.NoError(t, hub.PresentName("")) })
		}, transport.Untrusted, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if with.next && tc.kind == transport.Unauthorized {
				t.Skip("there are no keys, and a refused identity is tried again")
			}
			kind := tc.kind
			switch {
			case with.protocol == hubdata.HTTP:
				kind = cmp.Or(tc.http, tc.kind)
			case with.protocol == hubdata.AMQP && !with.sasl:
				kind = cmp.Or(tc.token, tc.kind)
			}
			if tc.before != nil {
				tc.before(t)
			}
			o := with.trusting(hub, way{Addr: addr.String()})
			if !tc.tls {
				o.TLS = nil
			}
			creds := with.credsOf(t, hub, "dev-1")
			if !with.next {
				creds = with.creds(t, tc.connect)
			}
			c, err := device.New(creds, with.make(creds, o), nil)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()

			err = c.Open(ctx)
			require.ErrorIs(t, err, kind)
			require.False(t, errfilter.Retryable(err))
			require.Equal(t, uint64(1), c.Stats().Attempts, "one attempt, no retry")
			require.Equal(t, device.ReasonNotRetryable, c.Status().Reason)
			require.NotEmpty(t, c.Status().Hint())
			for _, secret := range []string{otherKey, "SharedAccessSignature", "sig="} {
				require.False(t, strings.Contains(err.Error(), secret), "%v", err)
			}
			require.ErrorIs(t, c.Send(ctx, &transport.Message{}), kind, "a Send says why")
			require.NoError(t, c.Close())
		})
	}

	t.Run("the refusal's code can be asked for", func(t *testing.T) {
		if with.next {
			t.Skip("there are no keys, and a refused identity is tried again")
		}
		creds := with.creds(t, host+";DeviceId=dev-1;SharedAccessKey="+otherKey)
		c, err := device.New(creds, with.make(creds, &way{Addr: addr.String(), TLS: hub.ClientTLS()}), nil)
		require.NoError(t, err)
		defer c.Close()
		err = c.Open(t.Context())
		switch {
		case with.five:
			refusal, ok := errors.AsType[*mqttengine.ReasonError](err)
			require.True(t, ok)
			require.EqualValues(t, 0x87, refusal.Code)
			require.Contains(t, refusal.Reason, "signed with another key")
		case with.protocol == hubdata.MQTT:
			refusal, ok := errors.AsType[*mqtt.ConnackError](err)
			require.True(t, ok)
			require.EqualValues(t, 5, refusal.Code)
		case with.protocol == hubdata.HTTP:
			refusal, ok := errors.AsType[*transport.StatusError](err)
			require.True(t, ok)
			require.Equal(t, 401003, refusal.Code)
		case with.sasl:
			refusal, ok := errors.AsType[*amqp.SASLError](err)
			require.True(t, ok)
			require.Equal(t, 1, refusal.Code)
		default:
			refusal, ok := errors.AsType[*amqp.TokenError](err)
			require.True(t, ok)
			require.Equal(t, 401, refusal.Status)
		}
	})
	t.Run("a message of the largest size arrives, one byte more is refused", func(t *testing.T) {
		creds, limit := with.credsOf(t, hub, "dev-1"), transport.MaxMessageSize
		if with.next {
			limit = 255_000
		}
		c, err := device.New(creds, with.make(creds, with.trusting(hub, way{Addr: addr.String()})), nil)
		require.NoError(t, err)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		require.NoError(t, c.Open(ctx))
		m := &transport.Message{ID: "1", Properties: []transport.Property{{Name: "k", Value: "v"}}}
		if with.boxed {
			t.Skip("the size of an envelope counts")
		}
		m.Body = make([]byte, limit-m.Size())
		require.NoError(t, c.Send(ctx, m))
		require.Equal(t, 1, hub.Len())
		m.Body = append(m.Body, 0)
		require.ErrorIs(t, c.Send(ctx, m), transport.TooLarge)
		require.Equal(t, device.StateConnected, c.Status().State)
	})
}
