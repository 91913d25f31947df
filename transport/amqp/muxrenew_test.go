package amqp_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// login returns a Mux to a broker, and the credentials of devices that log in with passwords that
// last for an hour.
func (h *hub) login(t testing.TB) (*amqp.Mux, func(id string) *transport.Credentials) {
	o := h.options()
	o.Addresses = &amqp.Addresses{Telemetry: "/devices/dev-1/messages/events"}
	user := h.CredsWith(t, "")
	return amqp.NewMux(o), func(id string) *transport.Credentials {
		return &transport.Credentials{Host: user.Host, DeviceID: id, UserName: "dev-1@sas.hub",
			Token: func(ctx context.Context) (transport.Token, error) { return user.NewToken(ctx) }}
	}
}

// The devices of a Mux whose login expires move to a new connection in time: one dials, and nobody
// sees a failure.
func TestTheLoginOfAMuxIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		mux, creds := h.login(t)
		var mu sync.Mutex
		reasons := map[device.Reason]int{}
		var all []*device.Client
		for i := range 100 {
			c, err := device.New(creds(fmt.Sprintf("fleet-%d", i)), mux, &device.Options{OnStatus: func(s device.Status) {
				mu.Lock()
				defer mu.Unlock()
				reasons[s.Reason]++
				if s.Err != nil {
					t.Error(s.Err)
				}
			}})
			require.NoError(t, err)
			defer c.Close()
			all = append(all, c)
		}
		each(all, func(i int, c *device.Client) {
			time.Sleep(time.Duration(i) * time.Minute / 3) // late ones join with less of the token's life left
			if err := c.Open(t.Context()); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(3 * time.Hour)
		each(all, func(_ int, c *device.Client) {
			if err := c.Send(t.Context(), numbered(0)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		mu.Lock()
		renewals := reasons[device.ReasonTokenRenewal]
		mu.Unlock()
		require.GreaterOrEqual(t, renewals, 300)
		require.LessOrEqual(t, h.dials.Load(), int32(5), "one dial for all")
		require.LessOrEqual(t, h.Connections(""), 2)
		each(all, func(_ int, c *device.Client) { _ = c.Close() })
		synctest.Wait()
		require.Zero(t, h.Connections(""))
	})
}

// With a certificate, the devices of a Mux learn when that expires.
func TestTheCertificateOfAMuxExpires(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		cert := testbroker.NewClientCert("dev-x", time.Time{}, time.Time{})
		_, err := h.AddDeviceX509("dev-x", testbroker.Thumbprint(cert.Leaf))
		require.NoError(t, err)
		mux := amqp.NewMux(&amqp.Options{Auth: amqp.AuthExternal,
			Addresses: &amqp.Addresses{Telemetry: "/devices/dev-x/messages/events"},
			Network: netopt.Options{Dial: h.Dial(testbroker.PortAMQPS), TLS: h.ClientTLS(),
				Certificate: func(context.Context) (*tls.Certificate, error) { return &cert, nil }}})
		for _, id := range []string{"a", "b"} {
			r := start(t, mux, &transport.Credentials{Host: h.HostName(), DeviceID: id})
			r.requireSends("x")
			require.Equal(t, cert.Leaf.NotAfter, r.Info().Expires)
		}
	})
}

// A connection whose login is to be renewed takes no further devices, and lasts until the last one
// has left it.
func TestAMuxKeepsTheOldConnectionUntilAllHaveLeft(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		mux, creds := h.login(t)
		first, second := start(t, mux, creds("a")), start(t, mux, creds("b"))
		require.Equal(t, time.Hour, time.Until(first.Info().Expires).Round(time.Second))
		require.Equal(t, first.Info().Expires, second.Info().Expires)
		time.Sleep(50 * time.Minute)
		require.ErrorIs(t, first.ask(&transport.Request{ID: 1, Op: transport.OpRenew}).Err, transport.Unsupported)
		first.cancel()
		<-first.over
		first = start(t, mux, creds("a"))
		require.Equal(t, time.Hour, time.Until(first.Info().Expires).Round(time.Second))
		third := start(t, mux, creds("c"))
		require.Equal(t, first.Info().Expires, third.Info().Expires)
		require.EqualValues(t, 2, h.dials.Load())
		require.Equal(t, 2, h.Connections(""))
		for _, r := range []*running{first, second, third} {
			r.requireSends("x")
		}
		second.cancel()
		<-second.over
		synctest.Wait()
		require.Equal(t, 1, h.Connections(""))
		for _, r := range []*running{first, third} {
			r.requireSends("y")
		}
	})
}

// While a retired connection is in use, the Mux stays with its host and user.
func TestAMuxKeepsItsUserDuringARenewal(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		mux, creds := h.login(t)
		first, second := start(t, mux, creds("a")), start(t, mux, creds("b"))
		require.ErrorIs(t, first.ask(&transport.Request{ID: 1, Op: transport.OpRenew}).Err, transport.Unsupported)
		other := creds("x")
		other.UserName = "someone else"
		require.ErrorIs(t, try(t, mux, other), transport.Invalid)
		elsewhere := creds("y")
		elsewhere.Host = "typo.example.test"
		require.ErrorIs(t, try(t, mux, elsewhere), transport.Invalid)
		for i, r := range []*running{first, second} {
			r.cancel()
			<-r.over
			start(t, mux, creds(string(rune('a'+i)))).requireSends("x")
		}
		require.EqualValues(t, 2, h.dials.Load())
	})
}

// The devices on a retired connection count, and one that moves to the new connection is not
// refused when another device has taken its place meanwhile.
func TestTheLimitOfDevicesDuringARenewal(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		o.Addresses, o.Devices = &amqp.Addresses{Telemetry: "/devices/dev-1/messages/events"}, 2
		_, creds := h.login(t)
		mux := amqp.NewMux(o)
		first, second := start(t, mux, creds("a")), start(t, mux, creds("b"))
		require.ErrorIs(t, first.ask(&transport.Request{ID: 1, Op: transport.OpRenew}).Err, transport.Unsupported)
		require.ErrorIs(t, try(t, mux, creds("c")), transport.Quota)
		first.cancel()
		<-first.over
		third := start(t, mux, creds("c"))
		first = start(t, mux, creds("a"))
		for _, r := range []*running{first, second, third} {
			r.requireSends("x")
		}
		require.ErrorIs(t, try(t, mux, creds("d")), transport.Quota)
		first.cancel()
		<-first.over
		require.ErrorIs(t, try(t, mux, creds("a")), transport.Quota, "it does not move any longer")
	})
}
