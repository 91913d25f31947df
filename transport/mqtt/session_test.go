package mqtt

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func TestASessionPublishesReportsAndDisconnects(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		r.send("one", "two")
		a, b := l.expect(typePublish), l.expect(typePublish)
		require.Equal(t, "one", a.payload())
		require.Equal(t, "two", b.payload())
		require.Equal(t, byte(2), a.flags, "QoS 1, neither DUP nor RETAIN")
		require.Equal(t, "devices/dev-1/messages/events/", a.topic())
		synctest.Wait()
		require.Empty(t, r.sink.tags())
		l.puback(b.id())
		l.puback(a.id())
		l.puback(999)
		synctest.Wait()
		require.Equal(t, []uint16{1, 0}, r.sink.tags())

		r.cancel()
		rest, err := l.drain()
		require.Equal(t, io.EOF, err)
		require.Equal(t, []packet{{kind: typeDisconnect, body: []byte{}}}, rest)
		require.Error(t, <-r.ran)
	})
}

func TestTheLossOfALiveSessionIsReportedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		require.NoError(t, l.Close())
		err := <-r.ran
		e := transport.Find(err)
		require.NotNil(t, e)
		require.Equal(t, transport.Network, e.Kind)
		require.Equal(t, transport.Connection, e.Scope)
		require.Equal(t, transport.OpRun, e.Op)
		require.True(t, errors.Is(err, io.EOF))
		require.Equal(t, "mqtt connection: network failure: the hub closed the connection", err.Error())
	})
}

func TestAnIdleSessionHasTenGoroutines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		start(t, h, h.options())
		synctest.Wait()
		require.Equal(t, 9+1, goroutines(), "the library's without its keep-alive, and Run")
	})
}

// Several clients may share one Transport.
func TestATransportServesSeveralClients(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		shared := New(h.options())
		for range 3 {
			go func() {
				_, _ = h.welcome().drain()
			}()
		}
		ended := make(chan error, 3)
		ctx, cancel := context.WithCancel(context.Background())
		for range 3 {
			go func() {
				s, err := shared.Dial(ctx, &transport.Config{Creds: testCreds(t), Window: 4, Sink: new(sink)})
				if err == nil {
					err = s.Run(ctx)
				}
				ended <- err
			}()
		}
		synctest.Wait()
		require.Empty(t, ended)
		cancel()
		for range 3 {
			require.ErrorIs(t, <-ended, context.Canceled)
		}
	})
}

// Without Sign and Token a certificate proves the identity.
func TestCredentialsWithoutATokenSendNoPassword(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		go func() {
			c, err := h.net.Accept()
			require.NoError(t, err)
			l := newLink(t, c)
			connect := l.expect(1)
			require.Equal(t, byte(0x80), connect.body[7], "user name only")
			l.send(typeConnack<<4, 2, 0, 0)
		}()
		ctx, cancel := context.WithCancel(context.Background())
		creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1", ModuleID: "mod"}
		s, err := New(h.options()).Dial(ctx, &transport.Config{Creds: creds, Sink: new(sink)})
		require.NoError(t, err)
		require.True(t, s.Info().Expires.IsZero())
		cancel()
		require.Error(t, s.Run(ctx))
	})
}

// The length of a CONNECT's password has two bytes, which the library would let overflow.
func TestATokenThatNoConnectCanCarryIsInvalid(t *testing.T) {
	creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1",
		Token: func(context.Context) (transport.Token, error) {
			return transport.Token{Text: transport.Hide(strings.Repeat("x", 65536))}, nil
		}}
	_, err := New(nil).Dial(t.Context(), &transport.Config{Creds: creds, Sink: new(sink)})
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "65536 bytes")
	longest := &transport.Credentials{Host: strings.Repeat("h", 255), DeviceID: strings.Repeat("%", 128),
		ModuleID: strings.Repeat("%", 128)}
	o := &Options{Network: netopt.Options{ProductInfo: strings.Repeat("#", wire.MaxInfo)},
		ModelID: "dtmi:" + strings.Repeat("#", wire.MaxInfo-5)}
	require.LessOrEqual(t, len(helloOf(t, o, longest).UserName), wire.MaxField)
}
