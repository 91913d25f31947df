package websocket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// hub is a scripted hub in memory.
type hub struct {
	t   testing.TB
	net *memconn.Network
}

func newHub(t testing.TB) *hub {
	h := &hub{t, memconn.NewNetwork("hub.example.test:80")}
	t.Cleanup(func() { _ = h.net.Close() })
	return h
}

func (h *hub) options(o *Options) *mqtt.Options {
	return &mqtt.Options{Network: netopt.Options{Plaintext: true, Dial: h.net.DialContext, Tunnel: MQTT(o)}}
}

func (h *hub) accept() net.Conn {
	c, err := h.net.Accept()
	require.NoError(h.t, err)
	return c
}

// welcome accepts a WebSocket and a CONNECT.
func (h *hub) welcome() *server {
	w, err := accept(h.accept())
	require.NoError(h.t, err)
	h.connect(w)
	return w
}

func (h *hub) connect(w *server) {
	testkit.NewMQTTLink(h.t, w).Expect(0x10)
	_, err := w.Write([]byte{0x20, 2, 0, 0})
	require.NoError(h.t, err)
}

type sink = hubfixture.Sink

func creds() *transport.Credentials {
	return &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1",
		Token: func(context.Context) (transport.Token, error) {
			return transport.Token{Text: transport.Hide("secret")}, nil
		}}
}

func dial(ctx context.Context, o *mqtt.Options) (transport.Session, *sink, error) {
	k := new(sink)
	s, err := mqtt.New(o).Dial(ctx, &transport.Config{Creds: creds(), Window: 16, Queue: 16, Sink: k})
	return s, k, err
}

type running struct {
	transport.Session
	*sink
	ran    <-chan error
	cancel context.CancelFunc
}

// start dials the hub and runs the session.
func start(t testing.TB, h *hub, o *mqtt.Options) (*running, *server) {
	t.Helper()
	var w *server
	played := make(chan struct{})
	go func() {
		defer close(played)
		w = h.welcome()
	}()
	ctx, cancel := context.WithCancel(context.Background())
	s, k, err := dial(ctx, o)
	require.NoError(t, err)
	<-played
	return &running{s, k, k.Run(t, ctx, s, cancel), cancel}, w
}

func (r *running) send(bodies ...string) { r.Send(hubfixture.Items(0, bodies...)) }

func TestTheRequestIsWhatTheHubWants(t *testing.T) {
	for name, c := range map[string]struct {
		opt  *Options
		peer netopt.Peer
		want string
	}{
		"token":       {nil, netopt.Peer{}, "/$iothub/websocket?iothub-no-client-cert=true"},
		"certificate": {nil, netopt.Peer{ClientCertificate: true}, "/$iothub/websocket"},
		"own path":    {&Options{Path: "/mqtt?a=b", Header: http.Header{"X-Site": {"7"}}}, netopt.Peer{}, "/mqtt?a=b"},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			a, b := memconn.Pair("a", "b")
			defer a.Close()
			got := make(chan *server, 1)
			go func() {
				w, err := accept(b)
				require.NoError(t, err)
				got <- w
			}()
			c.peer.Host = "hub.example.test"
			_, err := MQTT(c.opt).Open(t.Context(), a, c.peer)
			require.NoError(t, err)
			r := (<-got).request
			require.Equal(t, c.want, r.RequestURI)
			require.Equal(t, "hub.example.test", r.Host)
			require.Equal(t, []string{"mqtt"}, r.Header.Values("Sec-WebSocket-Protocol"))
			require.Empty(t, r.Header.Get("Sec-WebSocket-Extensions"))
			require.NotContains(t, fmt.Sprint(r.Header), "secret")
			if c.opt != nil {
				require.Equal(t, "7", r.Header.Get("X-Site"))
			}
		})
	}
}

// net/http adds HTTP/2 to a tls.Config that it used. A server with HTTP/2 must not take the request
// for HTTP/2 then.
func TestASharedTLSConfig(t *testing.T) {
	h := hubfixture.New(t)
	shared := h.ClientTLS()
	shared.NextProtos = []string{"h2", "http/1.1"}
	c, err := device.New(h.CredsWith(t, ""),
		mqtt.New(&mqtt.Options{Network: netopt.Options{Tunnel: MQTT(nil), Dial: h.Dial(testbroker.PortHTTPS),
			TLS: shared}}),
		&device.Options{RetryPolicy: retrypolicy.NoRetry{}})
	require.NoError(t, err)
	require.NoError(t, c.Open(t.Context()))
	require.NoError(t, c.Close())
}

func TestPorts(t *testing.T) {
	require.Equal(t, "443", MQTT(nil).Port(true))
	require.Equal(t, "80", MQTT(nil).Port(false))
}

func TestWrongOptionsAreInvalid(t *testing.T) {
	for _, o := range []Options{{Path: "mqtt"}, {Path: "/a#b"}, {Path: "/a b"}, {Path: "/%zz"}, {Path: "/\n"},
		{Header: http.Header{"sec-websocket-key": {"x"}}}} {
		testkit.Bubble(t, func(t *testing.T) {
			h := newHub(t)
			_, _, err := dial(t.Context(), h.options(&o))
			require.ErrorIs(t, err, transport.Invalid, "%+v", o)
			require.Equal(t, transport.OpDial, transport.Find(err).Op)
			require.Equal(t, "mqtt", transport.Find(err).Proto)
		})
	}
}

// Every status has a Kind, and the error contains the code.
func TestKindsOfRefusedUpgrades(t *testing.T) {
	want := map[int]transport.Kind{
		101: transport.Protocol, 200: transport.Protocol, 301: transport.Protocol, 302: transport.Protocol,
		400: transport.Protocol, 401: transport.Unauthorized, 402: transport.Forbidden, 403: transport.Forbidden,
		404: transport.NotFound, 405: transport.Protocol,
		406: transport.Protocol, 407: transport.Protocol, 408: transport.Timeout, 410: transport.NotFound,
		426: transport.Unsupported, 429: transport.Throttled,
		451: transport.Forbidden, 418: transport.Unknown, 500: transport.Unavailable, 501: transport.Unsupported,
		502: transport.Unavailable, 503: transport.Unavailable,
		504: transport.Timeout, 505: transport.Unsupported, 511: transport.Network, 599: transport.Unavailable,
	}
	for status, kind := range want {
		testkit.Bubble(t, func(t *testing.T) {
			h := newHub(t)
			go func() {
				c := h.accept()
				w, err := readRequest(c)
				require.NoError(t, err)
				fmt.Fprintf(w.Conn, "HTTP/1.1 %d Whatever\r\nLocation: https://elsewhere/\r\nRetry-After: 7\r\nContent-Length: "+
					"4\r\n\r\nbody", status)
				_, _ = io.Copy(io.Discard, c)
			}()
			_, _, err := dial(t.Context(), h.options(nil))
			require.ErrorIs(t, err, kind, "%d: %v", status, err)
			e := transport.Find(err)
			require.Equal(t, transport.ScopeConnection, e.Scope)
			require.Equal(t, transport.OpDial, e.Op)
			require.Equal(t, "mqtt", e.Proto)
			if status == 101 {
				return
			}
			require.Equal(t, 7*time.Second, e.RetryAfter)
			refused, ok := errors.AsType[*transport.StatusError](err)
			require.True(t, ok)
			require.Equal(t, status, refused.Status)
			require.Contains(t, err.Error(), "WebSocket server answered "+strconv.Itoa(status))
			require.Equal(t, kind == transport.Throttled || kind == transport.Unavailable || kind == transport.Timeout ||
				kind == transport.Network,
				errfilter.Retryable(err))
			require.NotContains(t, err.Error(), "Whatever")
		})
	}
}

// A refusal may have a body without an end.
func TestARefusalIsSeenAtItsHead(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := newHub(t)
		go func() {
			w, err := readRequest(h.accept())
			require.NoError(t, err)
			_, _ = io.WriteString(w.Conn, "HTTP/1.1 401 No\r\n\r\n")
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _, err := dial(ctx, h.options(nil))
		require.ErrorIs(t, err, transport.Unauthorized, "%v", err)
	})
}

// A web page is no answer of a service, so it blames neither the device's key nor its rights.
func TestAWebPageIsNoRefusalByTheService(t *testing.T) {
	for status, kind := range map[int]transport.Kind{
		200: transport.Protocol, 302: transport.Protocol, 401: transport.Protocol, 403: transport.Protocol,
		404: transport.Protocol, 451: transport.Protocol, 429: transport.Throttled, 503: transport.Unavailable,
		511: transport.Network,
	} {
		testkit.Bubble(t, func(t *testing.T) {
			h := newHub(t)
			go func() {
				c := h.accept()
				w, err := readRequest(c)
				require.NoError(t, err)
				fmt.Fprintf(w.Conn, "HTTP/1.1 %d No\r\nContent-Type: text/HTML; charset=utf-8\r\nContent-Length: 6\r\n\r\n<html>",
					status)
				_, _ = io.Copy(io.Discard, c)
			}()
			_, _, err := dial(t.Context(), h.options(nil))
			require.ErrorIs(t, err, kind, "%d: %v", status, err)
			require.ErrorContains(t, err, "a web page: a captive portal or a proxy may have answered in place of the service")
		})
	}
}

func TestPeersThatDoNotSpeakMQTTOverWebSocket(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w *server)
		kind   transport.Kind
		text   string
	}{
		"no HTTP": {func(w *server) {
			_, _ = io.WriteString(w.Conn, "220 mail\r\n\r\n")
		}, transport.Protocol, "WebSocket handshake"},
		"MQTT": {func(w *server) {
			_, _ = w.Conn.Write([]byte{0x20, 2, 0, 0, '\r', '\n', '\r', '\n'})
		}, transport.Protocol, "WebSocket handshake"},
		"an endless answer": {func(w *server) { endless(w.Conn) }, transport.Protocol, "too long"},
		"no subprotocol":    {func(w *server) { _ = w.upgrade("") }, transport.Protocol, "did not agree to MQTT"},
		"another subprotocol": {func(w *server) {
			_ = w.upgrade("Sec-WebSocket-Protocol: amqp\r\n")
		}, transport.Protocol, "did not agree to MQTT"},
		"a wrong key": {func(w *server) {
			w.request.Header.Set("Sec-WebSocket-Key", "x")
			_ = w.upgrade("Sec-WebSocket-Protocol: mqtt\r\n")
		}, transport.Protocol, "bad handshake"},
		"an extension that was not offered": {func(w *server) {
			_ = w.upgrade("Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Extensions: permessage-deflate; " +
				"server_no_context_takeover; client_no_context_takeover\r\n")
		}, transport.Protocol, "extension"},
		"text in place of CONNACK": {func(w *server) {
			_ = w.upgrade("Sec-WebSocket-Protocol: mqtt\r\n")
			_ = w.writeFrame(opText, true, []byte{0x20, 2, 0, 0})
		}, transport.Protocol, "text"},
		"a masked frame": {func(w *server) {
			_ = w.upgrade("Sec-WebSocket-Protocol: mqtt\r\n")
			_, _ = w.Conn.Write([]byte{0x82, 0x84, 1, 2, 3, 4, 0x20, 2, 0, 0})
		}, transport.Protocol, "bad MASK"},
		"a close frame in place of CONNACK": {func(w *server) {
			_ = w.upgrade("Sec-WebSocket-Protocol: mqtt\r\n")
			_ = w.writeFrame(opClose, true, []byte("\x03\xE9moving"))
		}, transport.Network, `with code 1001: "moving"`},
		"hung up": {func(w *server) { _ = w.Conn.Close() }, transport.Network, "WebSocket handshake: EOF"},
		"reset": {func(w *server) {
			w.Conn.(*memconn.Conn).Reset()
		}, transport.Network, "connection reset"},
		"hung up within the answer": {func(w *server) {
			_, _ = io.WriteString(w.Conn, "HTTP/1.1 101 Swi")
			_ = w.Conn.Close()
		}, transport.Network, "EOF"},
		"hung up after the upgrade": {func(w *server) {
			_ = w.upgrade("Sec-WebSocket-Protocol: mqtt\r\n")
			_, _ = w.Conn.Read(make([]byte, 4096)) // CONNECT
			_ = w.Conn.Close()
		}, transport.Network, "the hub closed the connection"},
		"hung up within a frame": {func(w *server) {
			_ = w.upgrade("Sec-WebSocket-Protocol: mqtt\r\n")
			_, _ = w.Conn.Read(make([]byte, 4096)) // CONNECT
			_, _ = w.Conn.Write([]byte{0x82, 4, 0x20})
			_ = w.Conn.Close()
		}, transport.Network, "the hub closed the connection"},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			h := newHub(t)
			go func() {
				raw := h.accept()
				w, err := readRequest(raw)
				require.NoError(t, err)
				c.answer(w)
				_, _ = io.Copy(io.Discard, raw)
			}()
			_, _, err := dial(t.Context(), h.options(nil))
			require.ErrorIs(t, err, c.kind, "%v", err)
			require.ErrorContains(t, err, c.text)
			require.Equal(t, c.kind == transport.Network, errfilter.Retryable(err))
			requireClosed(t, h)
		})
	}
}

// requireClosed fails if the client's end of the last connection is open.
func requireClosed(t *testing.T, h *hub) {
	t.Helper()
	_, err := h.net.Last().Write([]byte{0})
	require.ErrorIs(t, err, net.ErrClosed)
}

func endless(c net.Conn) {
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
	for range 10_000 {
		if _, err := io.WriteString(c, "X-Filler: "+strings.Repeat("x", 80)+"\r\n"); err != nil {
			return
		}
	}
}
