package http_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	hubhttp "github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// emulated runs f in a bubble with the hub emulator.
func emulated(t *testing.T, f func(t *testing.T, h *testbroker.Hub)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		h, err := testbroker.New(nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, h.Close()) }()
		f(t, h)
	})
}

// A certificate proves the identity, no token is sent, and the certificate is requested for each
// connection.
func TestCertificates(t *testing.T) {
	for _, two := range []bool{false, true} {
		emulated(t, func(t *testing.T, h *testbroker.Hub) {
			cert := testbroker.NewClientCert("dev-x", time.Time{}, time.Time{})
			_, err := h.AddDeviceX509("dev-x", testbroker.Thumbprint(cert.Leaf))
			require.NoError(t, err)
			creds := &transport.Credentials{Host: h.HostName(), DeviceID: "dev-x"}
			o := &hubhttp.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortHTTPS), TLS: h.ClientTLS()}, HTTP2: two}
			_, err = hubhttp.New(o).Dial(t.Context(), &transport.Config{Creds: creds})
			require.ErrorIs(t, err, transport.Invalid)
			require.ErrorContains(t, err, "Certificate")

			asked := 0
			o.Network.Certificate = func(context.Context) (*tls.Certificate, error) { asked++; return &cert, nil }
			c, err := device.New(creds, hubhttp.New(o), nil)
			require.NoError(t, err)
			require.NoError(t, c.Open(t.Context()))
			require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("x")}))
			require.Equal(t, 1, asked)
			time.Sleep(2 * time.Minute) // the idle connection is closed meanwhile
			require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("y")}))
			require.Equal(t, 2, asked)
			require.Equal(t, "dev-x", h.Messages()[1].DeviceID)
			require.Equal(t, uint64(1), c.Stats().Connections)
			require.NoError(t, c.Close())

			other := testbroker.NewClientCert("dev-x", time.Time{}, time.Time{})
			o.Network.Certificate = func(context.Context) (*tls.Certificate, error) { return &other, nil }
			_, err = hubhttp.New(o).Dial(t.Context(), &transport.Config{Creds: creds})
			require.ErrorIs(t, err, transport.Unauthorized)
		})
	}
}

// Dial reports TLS errors before anything is sent.
func TestTLSAlertsAreKnownAtDial(t *testing.T) {
	emulated(t, func(t *testing.T, h *testbroker.Hub) {
		_, err := h.AddDevice("dev-1")
		require.NoError(t, err)
		creds, err := device.ParseConnectionString(h.ConnectionString("dev-1"))
		require.NoError(t, err)

		_, err = hubhttp.New(&hubhttp.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortHTTP),
			TLS: h.ClientTLS()}}).Dial(t.Context(), &transport.Config{Creds: creds})
		require.ErrorIs(t, err, transport.Protocol)

		unset := *creds
		unset.Now = func() time.Time { return time.Unix(1000, 0) }
		_, err = hubhttp.New(&hubhttp.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortHTTPS),
			TLS: h.ClientTLS()}}).Dial(t.Context(),
			&transport.Config{Creds: &unset})
		require.ErrorIs(t, err, transport.ClockUnset)
		require.True(t, errfilter.Retryable(err))

		// With a TLS time that is close enough, the hub sets the clock.
		base := h.ClientTLS()
		base.Time = func() time.Time { return time.Now().Add(-time.Minute) }
		s, err := hubhttp.New(&hubhttp.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortHTTPS), TLS: base}}).Dial(
			t.Context(),
			&transport.Config{Creds: &unset})
		require.NoError(t, err)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, s.Run(over))
	})
}

// HTTP/2 is used if both sides want it, else HTTP/1.1.
func TestHTTP2(t *testing.T) {
	for _, row := range []struct{ client, hub, two bool }{{true, true, true}, {false, true, false}, {true, false, false}} {
		seen := make(chan string, 10)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen <- r.Proto
			w.WriteHeader(http.StatusNoContent)
		}))
		server.EnableHTTP2 = row.hub
		server.StartTLS()
		sign, err := transport.SharedKey(goodKey)
		require.NoError(t, err)
		roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		o := &hubhttp.Options{Network: netopt.Options{Addr: strings.TrimPrefix(server.URL, "https://"),
			TLS: &tls.Config{RootCAs: roots}},
			HTTP2: row.client}
		c, err := device.New(&transport.Credentials{Host: "example.com", DeviceID: "d", Sign: sign}, hubhttp.New(o), nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("x")}))
		require.NoError(t, c.Close())
		for range 2 {
			require.Equal(t, row.two, <-seen == "HTTP/2.0")
		}
		server.Close()
	}
}

// blockedConn accepts no more data once blocked is set, until it is closed. It ignores deadlines.
type blockedConn struct {
	net.Conn
	blocked atomic.Bool
	closed  chan struct{}
	once    sync.Once
}

func (c *blockedConn) Write(p []byte) (int, error) {
	if c.blocked.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func (c *blockedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TLS's close_notify is a write, too, so the socket is closed under it when it takes too long.
func TestCloseOfTLSIsBounded(t *testing.T) {
	// In real time: crypto/tls waits for a mutex meanwhile, which stops the bubble's clock.
	watchdog := time.AfterFunc(10*time.Second, func() { panic("the close_notify of TLS delays Close") })
	defer watchdog.Stop()
	emulated(t, func(t *testing.T, h *testbroker.Hub) {
		d, err := h.AddDevice("dev-1")
		require.NoError(t, err)
		sign, err := transport.SharedKey(d.PrimaryKey)
		require.NoError(t, err)
		var conns []*blockedConn
		o := &hubhttp.Options{Network: netopt.Options{TLS: h.ClientTLS(), Dial: func(ctx context.Context, network,
			addr string) (net.Conn, error) {
			c, err := h.Dial(testbroker.PortHTTPS)(ctx, network, addr)
			conns = append(conns, &blockedConn{Conn: c, closed: make(chan struct{})})
			return conns[len(conns)-1], err
		}}}
		creds := &transport.Credentials{Host: h.HostName(), DeviceID: "dev-1", Sign: sign}
		c, err := device.New(creds, hubhttp.New(o), nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("x")}))
		for _, conn := range conns {
			conn.blocked.Store(true)
		}
		began := time.Now()
		require.NoError(t, c.Close())
		require.Equal(t, 700*time.Millisecond, time.Since(began))
	})
}

// A tls.Config that net/http has used, and added HTTP/2 to, works as well as a fresh one.
func TestASharedTLSConfig(t *testing.T) {
	for _, two := range []bool{false, true} {
		seen := make(chan string, 10)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen <- r.Proto
			w.WriteHeader(http.StatusNoContent)
		}))
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)
		mine := &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
		other := &http.Transport{TLSClientConfig: mine, ForceAttemptHTTP2: true}
		t.Cleanup(other.CloseIdleConnections)
		response, err := (&http.Client{Transport: other}).Get(server.URL)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, "HTTP/2.0", <-seen)
		require.Contains(t, mine.NextProtos, "h2", "net/http leaves the Config alone by now")

		o := &hubhttp.Options{Network: netopt.Options{Addr: strings.TrimPrefix(server.URL, "https://"), TLS: mine},
			HTTP2: two}
		sign, err := transport.SharedKey(goodKey)
		require.NoError(t, err)
		creds := &transport.Credentials{Host: "example.com", DeviceID: "d", Sign: sign}
		c, err := device.New(creds, hubhttp.New(o), &device.Options{OutageLimit: time.Nanosecond})
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Close())
		require.Equal(t, two, <-seen == "HTTP/2.0")
	}
}
