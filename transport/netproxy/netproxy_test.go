package netproxy_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/netproxy"
	"github.com/hubline-iot/hubline/transport/websocket"
)

const (
	user     = "the user"
	password = "p@ss:w/rd?"
	userInfo = "the%20user:p%40ss%3Aw%2Frd%3F@"
)

var secrets = []string{password, "p%40ss", "the user", "the%20user", "dGhlIHVzZXI6"} // the last is base64

func requireNoSecret(t testing.TB, err error) {
	t.Helper()
	for e := err; e != nil; e = errors.Unwrap(e) {
		for _, s := range secrets {
			require.NotContains(t, e.Error(), s)
			require.NotContains(t, fmt.Sprintf("%+v %#v", e, e), s)
		}
	}
}

// inMemory returns a dial function through an in-memory proxy, and its network.
func inMemory(t testing.TB, rawURL string, serve func(net.Conn)) (netproxy.DialFunc, *memconn.Network) {
	n := memconn.NewNetwork("proxy.local:3128")
	t.Cleanup(func() { _ = n.Close() })
	go listen(n, serve)
	d, err := netproxy.New(rawURL, &netproxy.Options{Dial: n.DialContext})
	require.NoError(t, err)
	return d, n
}

// echo is a target that returns the bytes it receives.
func echo(context.Context, string, string) (net.Conn, error) {
	a, b := memconn.Pair("proxy", "target")
	go func() {
		defer b.Close()
		_, _ = io.Copy(b, b)
	}()
	return a, nil
}

func TestConnectionsGoThroughTheProxy(t *testing.T) {
	for _, auth := range []string{"", user + ":" + password} {
		info := ""
		if auth != "" {
			info = userInfo
		}
		testkit.Run(t, "HTTP "+info, func(t *testing.T) {
			p := &httpProxy{target: echo, auth: auth}
			d, _ := inMemory(t, "http://"+info+"proxy.local:3128", p.serve)
			requireEcho(t, d)
			require.Equal(t, []string{"CONNECT hub.example.test:8883 hub.example.test:8883"}, p.asked)
		})
		for _, scheme := range []string{"socks5", "socks5h"} {
			testkit.Run(t, scheme+" "+info, func(t *testing.T) {
				p := &socksProxy{target: echo, auth: auth}
				d, _ := inMemory(t, scheme+"://"+info+"proxy.local:3128", p.serve)
				requireEcho(t, d)
				require.Equal(t, []string{"1 3 hub.example.test:8883"}, p.asked, "connect, by name")
			})
		}
	}
}

func requireEcho(t *testing.T, d netproxy.DialFunc) {
	t.Helper()
	c, err := d(t.Context(), "tcp", "hub.example.test:8883")
	require.NoError(t, err)
	_, err = io.WriteString(c, "hello")
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	require.NoError(t, c.Close())
}

// Bytes from the hub that arrive together with the proxy's answer must not be lost.
func TestBytesBehindTheAnswerAreTheHubs(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		p := &httpProxy{answer: "HTTP/1.0 200 OK\r\nA: b\r\n\r\nfirst words"}
		d, _ := inMemory(t, "http://proxy.local", p.serve)
		c, err := d(t.Context(), "tcp", "hub:1")
		require.NoError(t, err)
		got := make([]byte, 11)
		_, err = io.ReadFull(c, got)
		require.NoError(t, err)
		require.Equal(t, "first words", string(got))
		require.NoError(t, c.Close())
	})
}

func FuzzHead(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n"))
	f.Add([]byte("HTTP/1.0 407\n\n"))
	f.Add([]byte("HTTP/1.1 +20 x\r\n : \r\n\r\n"))
	f.Fuzz(func(t *testing.T, head []byte) {
		status, header, ok := netproxy.ParseHead(head)
		if ok && (status < 100 || status > 999) {
			t.Errorf("%d, %v", status, header)
		}
	})
}

func TestKindsOfHTTPRefusals(t *testing.T) {
	want := map[int]transport.Kind{
		100: transport.Protocol, 302: transport.Protocol, 400: transport.Protocol, 401: transport.Unauthorized,
		403: transport.Forbidden, 404: transport.Protocol,
		405: transport.Forbidden, 407: transport.Unauthorized, 408: transport.Timeout, 418: transport.Unknown,
		429: transport.Throttled, 451: transport.Forbidden,
		500: transport.Unavailable, 501: transport.Unsupported, 502: transport.Unavailable, 503: transport.Unavailable,
		504: transport.Timeout,
		505: transport.Unsupported, 599: transport.Unavailable, 999: transport.Protocol,
	}
	for status := range netproxy.StatusTexts {
		require.Contains(t, want, status)
	}
	for status, kind := range want {
		testkit.Bubble(t, func(t *testing.T) {
			p := &httpProxy{answer: fmt.Sprintf("HTTP/1.1 %d the user p@ss:w/rd?\r\nRetry-After: 9\r\n\r\n", status)}
			d, n := inMemory(t, "http://"+userInfo+"proxy.local:3128", p.serve)
			_, err := d(t.Context(), "tcp", "hub:8883")
			require.ErrorIs(t, err, kind, "%d: %v", status, err)
			e := transport.Find(err)
			require.Equal(t, transport.ScopeConnection, e.Scope)
			require.Equal(t, 9*time.Second, e.RetryAfter)
			refused, ok := errors.AsType[*transport.StatusError](err)
			require.True(t, ok)
			require.Equal(t, status, refused.Status)
			require.ErrorContains(t, err, "proxy proxy.local:3128: proxy answered ")
			requireNoSecret(t, err)
			requireClosed(t, n)
			switch status {
			case 502, 503, 504:
				require.True(t, errfilter.Retryable(err))
			case 403, 407:
				require.False(t, errfilter.Retryable(err))
			}
		})
	}
}

// A proxy whose ways to log in do not include Basic is not blamed on user name and password.
func TestAProxyThatWantsAnotherLoginSaysWhich(t *testing.T) {
	for challenges, c := range map[string]struct {
		kind transport.Kind
		text string
	}{
		"":                                  {transport.Unauthorized, ""},
		"Proxy-Authenticate: Basic\r\n":     {transport.Unauthorized, ""},
		"proxy-authenticate: BASIC x=1\r\n": {transport.Unauthorized, ""},
		"Proxy-Authenticate: Digest realm=\"a\", nonce=\"b\", Basic realm=\"a\"\r\n": {
			transport.Unauthorized, ""},
		"Proxy-Authenticate: Negotiate\r\nProxy-Authenticate: ntlm\r\n": {transport.Unsupported,
			"it wants Negotiate or NTLM, but only Basic is supported"},
		"Proxy-Authenticate: p@ss:w/rd?\r\n": {transport.Unsupported, "it wants another scheme, but"},
	} {
		testkit.Bubble(t, func(t *testing.T) {
			p := &httpProxy{answer: "HTTP/1.1 407 no\r\n" + challenges + "\r\n"}
			d, _ := inMemory(t, "http://"+userInfo+"proxy.local:3128", p.serve)
			_, err := d(t.Context(), "tcp", "hub:8883")
			require.Equal(t, c.kind, transport.KindOf(err), challenges)
			require.ErrorContains(t, err, c.text)
			require.ErrorIs(t, err, transport.ErrProxy)
			requireNoSecret(t, err)
		})
	}
}

func requireClosed(t *testing.T, n *memconn.Network) {
	t.Helper()
	_, err := n.Last().Write([]byte{0})
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestWrongPasswordsAreUnauthorized(t *testing.T) {
	for name, c := range map[string]struct {
		url   string
		serve func(net.Conn)
	}{
		"HTTP, wrong":   {"http://" + userInfo + "proxy.local", (&httpProxy{auth: "other:one"}).serve},
		"HTTP, none":    {"http://proxy.local", (&httpProxy{auth: "other:one"}).serve},
		"SOCKS5, wrong": {"socks5://" + userInfo + "proxy.local", (&socksProxy{auth: "other:one"}).serve},
		"SOCKS5, none":  {"socks5://proxy.local", (&socksProxy{auth: "other:one"}).serve},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			d, n := inMemory(t, c.url, c.serve)
			_, err := d(t.Context(), "tcp", "hub:8883")
			require.ErrorIs(t, err, transport.Unauthorized)
			requireNoSecret(t, err)
			requireClosed(t, n)
		})
	}
}

// A session measures the progress of writes on the socket, which nothing may hide from it.
func TestTheSocketIsInReach(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"http":   (&httpProxy{target: echo}).serve,
		"socks5": (&socksProxy{target: echo}).serve,
	} {
		t.Run(name, func(t *testing.T) {
			d, n := inMemory(t, name+"://proxy.example.test", serve)
			c, err := d(t.Context(), "tcp", "hub.example.test:8883")
			require.NoError(t, err)
			defer c.Close()
			require.Same(t, n.Last(), c)
		})
	}
}

// The library reports texts without codes: this test fails when it changes them.
func TestKindsOfSOCKS5Replies(t *testing.T) {
	for reply, kind := range []transport.Kind{
		1: transport.Unavailable, 2: transport.Forbidden, 3: transport.Network, 4: transport.Network, 5: transport.Network,
		6: transport.Network,
		7: transport.Unsupported, 8: transport.Unsupported, 9: transport.Unknown, 255: transport.Unknown,
	} {
		if reply == 0 || reply > 9 && reply < 255 {
			continue
		}
		testkit.Bubble(t, func(t *testing.T) {
			d, n := inMemory(t, "socks5://proxy.local:3128", (&socksProxy{reply: byte(reply)}).serve)
			_, err := d(t.Context(), "tcp", "hub:8883")
			require.ErrorIs(t, err, kind, "%d: %v", reply, err)
			_, ok := errors.AsType[*netproxy.ReplyError](err)
			require.True(t, ok)
			require.ErrorContains(t, err, "proxy proxy.local:3128: SOCKS5: ")
			requireClosed(t, n)
		})
	}
}

func TestPeersThatAreNoProxies(t *testing.T) {
	closeAfterRead := func(c net.Conn) { _, _ = c.Read(make([]byte, 1)); _ = c.Close() }
	banner := func(c net.Conn) {
		go func() { _, _ = io.WriteString(c, "SSH-2.0-x\r\n") }()
		_, _ = io.Copy(io.Discard, c)
	}
	for name, c := range map[string]struct {
		url   string
		serve func(net.Conn)
		kind  transport.Kind
		text  string
	}{
		"HTTP, mail":  {"http://p", (&httpProxy{answer: "220 hello\r\n\r\n"}).serve, transport.Protocol, "not HTTP"},
		"HTTP, waits": {"http://p", banner, transport.Protocol, "not HTTP"},
		"HTTP, no number": {"http://p", (&httpProxy{answer: "HTTP/1.1 abc\r\n\r\n"}).serve, transport.Protocol,
			"not HTTP"},
		"HTTP, four digits": {"http://p", (&httpProxy{answer: "HTTP/1.1 2000 OK\r\n\r\n"}).serve, transport.Protocol,
			"not HTTP"},
		"HTTP, empty": {"http://p", (&httpProxy{answer: "\r\n\r\n"}).serve, transport.Protocol, "not HTTP"},
		"HTTP, endless": {"http://p", (&httpProxy{answer: "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: bcdefgh\r\n",
			5000)}).serve, transport.Protocol,
			"not HTTP"},
		"HTTP, broken header": {"http://p", (&httpProxy{answer: "HTTP/1.1 200 OK\r\n no header\r\n\r\n"}).serve,
			transport.Protocol,
			"not HTTP"},
		"HTTP, closed": {"http://p", closeAfterRead, transport.Unknown, "proxy p:80: it closed the connection"},
		"SOCKS5, HTTP": {"socks5://p", (&socksProxy{raw: []byte("HTTP/1.1 400 Bad Request\r\n\r\n")}).serve,
			transport.Protocol,
			"unexpected protocol version 72"},
		"SOCKS5, odd method": {"socks5://" + userInfo + "p", (&socksProxy{raw: []byte{5, 9}}).serve, transport.Protocol,
			"unsupported authentication method 9"},
		"SOCKS5, closed": {"socks5://p", closeAfterRead, transport.Unknown, "proxy p:1080: EOF"},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			d, n := inMemory(t, c.url, c.serve)
			_, err := d(t.Context(), "tcp", "hub:8883")
			require.ErrorContains(t, err, c.text)
			require.Equal(t, c.kind, transport.KindOf(err))
			if c.kind == transport.Unknown { // the transport classifies network failures
				require.ErrorIs(t, err, io.EOF)
			}
			requireNoSecret(t, err)
			requireClosed(t, n)
		})
	}
}

// An unreachable proxy is reported like an unreachable hub, with the proxy's address.
func TestAnUnreachableProxyIsANetworkFailure(t *testing.T) {
	for _, scheme := range []string{"http", "https", "socks5"} {
		testkit.Bubble(t, func(t *testing.T) {
			d, n := inMemory(t, scheme+"://"+userInfo+"proxy.local:3128", func(net.Conn) {})
			n.Refuse(true)
			_, err := d(t.Context(), "tcp", "hub:8883")
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			require.ErrorContains(t, err, "proxy proxy.local:3128: ")
			requireNoSecret(t, err)

			_, err = mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true, Dial: d}}).Dial(t.Context(),
				config(&transport.Credentials{Host: "hub", DeviceID: "d"}))
			require.ErrorIs(t, err, transport.Network)
			require.True(t, errfilter.Retryable(err))
		})
	}
}

func TestTheEndOfCtxEndsTheDial(t *testing.T) {
	for _, scheme := range []string{"http", "https", "socks5"} {
		for name, c := range map[string]struct {
			prepare func(n *memconn.Network)
			serve   func(net.Conn)
		}{
			"while the proxy is out of reach": {func(n *memconn.Network) { n.Hang(true) }, func(net.Conn) {}},
			"while the proxy is silent": {func(*memconn.Network) {},
				func(c net.Conn) { _, _ = io.Copy(io.Discard, c); _ = c.Close() }},
			"while the proxy reads nothing": {func(n *memconn.Network) { n.SetBuffer(1) }, func(c net.Conn) {}},
		} {
			testkit.Run(t, scheme+" "+name, func(t *testing.T) {
				d, n := inMemory(t, scheme+"://proxy.local:3128", c.serve)
				c.prepare(n)
				ctx, cancel := context.WithCancel(context.Background())
				time.AfterFunc(3*time.Second, cancel)
				began := time.Now()
				_, err := d(ctx, "tcp", "hub:8883")
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorContains(t, err, "proxy proxy.local:3128: ")
				require.Equal(t, 3*time.Second, time.Since(began))
				if n.Last() != nil {
					requireClosed(t, n)
				}
			})
		}
	}
}

func TestWrongURLsAreInvalidAndNotRepeated(t *testing.T) {
	for rawURL, text := range map[string]string{
		"http://" + userInfo + "proxy.local:99999":          "wrong port",
		"http://" + userInfo + "proxy.local:0":              "wrong port",
		"http://" + userInfo + "proxy.local:x":              "is no URL",
		"http://the user:" + password + "@proxy.local":      "is no URL; percent-encode",
		"http://user:100%" + password + "@proxy.local":      "'%' is %25",
		"http://user:#" + password + "@proxy.local":         "'#' is %23",
		"http://" + userInfo:                                "has no host",
		"http://" + userInfo + "proxy.local/path":           "a path, a query or a fragment",
		"http://" + userInfo + "proxy.local?q":              "a path, a query or a fragment",
		"ftp://" + userInfo + "proxy.local":                 "scheme",
		"proxy.local:3128":                                  "scheme",
		"":                                                  "scheme",
		"http://a%3Ab:c@proxy.local":                        "colon",
		"socks5://:p@proxy.local":                           "SOCKS5 cannot carry",
		"socks5://u:" + strings.Repeat("x", 256) + "@proxy": "SOCKS5 cannot carry",
		"socks5://" + strings.Repeat("x", 256) + "@proxy":   "SOCKS5 cannot carry",
	} {
		d, err := netproxy.New(rawURL, nil)
		require.Nil(t, d)
		require.ErrorIs(t, err, transport.Invalid, rawURL)
		require.ErrorContains(t, err, text)
		requireNoSecret(t, err)
	}
	for _, rawURL := range []string{"http://proxy.local", "https://proxy.local/", "socks5://[::1]:9", "socks5h://u@proxy",
		"http://u:@p:1"} {
		d, err := netproxy.New(rawURL, nil)
		require.NoError(t, err, rawURL)
		require.NotNil(t, d)
	}
	d, err := netproxy.New("http://proxy.local", nil)
	require.NoError(t, err)
	for _, addr := range []string{"hub", "hub:1\r\nX: y", "a b:1"} {
		_, err = d(t.Context(), "tcp", addr)
		_, ok := errors.AsType[*net.AddrError](err)
		require.True(t, ok, addr)
	}
}

func config(creds *transport.Credentials) *transport.Config {
	return &transport.Config{Creds: creds, Window: 4, Queue: 4, Sink: nobody{}}
}

type nobody struct{}

func (nobody) Done(uint16, error)               {}
func (nobody) Reply(uint32, transport.Reply)    {}
func (nobody) Deliver(*transport.Delivery) bool { return false }

// realProxies returns the URLs of an HTTP and a SOCKS5 proxy on real ports, both with a password.
func realProxies(t *testing.T, connect target) map[string]string {
	open := func(serve func(net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go listen(l, serve)
		return l.Addr().String()
	}
	auth := user + ":" + password
	return map[string]string{
		"http":   "http://" + userInfo + open((&httpProxy{target: connect, auth: auth}).serve),
		"socks5": "socks5://" + userInfo + open((&socksProxy{target: connect, auth: auth}).serve),
	}
}

// MQTT works through every proxy on real ports, and leaves no socket open.
func TestMQTTThroughProxies(t *testing.T) {
	hub, err := testbroker.New(nil)
	require.NoError(t, err)
	defer hub.Close()
	dev, err := hub.AddDevice("dev-1")
	require.NoError(t, err)
	tlsAddr, err := hub.Listen(testbroker.PortMQTTS, "127.0.0.1:0")
	require.NoError(t, err)
	wsAddr, err := hub.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	require.NoError(t, err)
	// Only the proxy can resolve the hub's name.
	connect := func(ctx context.Context, network, addr string) (net.Conn, error) {
		switch addr {
		case dev.HostName + ":8883":
			addr = tlsAddr.String()
		case dev.HostName + ":443":
			addr = wsAddr.String()
		default:
			return nil, errors.New("unknown host")
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	urls := realProxies(t, connect)
	sign, err := transport.SharedKey(dev.PrimaryKey)
	require.NoError(t, err)
	creds := &transport.Credentials{Host: dev.HostName, DeviceID: dev.ID, Sign: sign}
	sockets, goroutines := openSockets(t), runtime.NumGoroutine()
	sent := 0
	for scheme, rawURL := range urls {
		for tunnel, o := range map[string]*mqtt.Options{"TLS": {},
			"WebSocket": {Network: netopt.Options{Tunnel: websocket.MQTT(nil)}}} {
			t.Run(scheme+" "+tunnel, func(t *testing.T) {
				o.Network.TLS = &tls.Config{RootCAs: hub.RootCAs()}
				o.Network.Dial, err = netproxy.New(rawURL, nil)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s, err := mqtt.New(o).Dial(ctx, config(creds))
				require.NoError(t, err)
				ran := make(chan error, 1)
				go func() { ran <- s.Run(ctx) }()
				s.Send([]transport.Item{{Msg: &transport.Message{Body: []byte(scheme)}}})
				sent++
				require.NoError(t, hub.WaitMessages(ctx, sent))
				cancel()
				require.Error(t, <-ran)

				elsewhere := *creds
				elsewhere.Host = "elsewhere.test"
				_, err = mqtt.New(o).Dial(t.Context(), config(&elsewhere))
				require.True(t, errfilter.Retryable(err), "%v", err)
				requireNoSecret(t, err)
			})
		}
	}
	// One goroutine is Eventually's own, one serves HTTP at the hub after the first WebSocket.
	require.Eventually(t, func() bool {
		return openSockets(t) <= sockets && runtime.NumGoroutine() <= goroutines+2
	}, 30*time.Second, 10*time.Millisecond)
}

// openSockets counts the sockets of this process, if the system tells.
func openSockets(t testing.TB) int {
	const dir = "/proc/self/fd/"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Log("open sockets are not counted here:", err)
	}
	n := 0
	for _, e := range entries {
		if to, err := os.Readlink(dir + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// TLS to the hub runs inside TLS to the proxy.
func TestAProxyWithTLS(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hub, err := testbroker.New(nil)
		require.NoError(t, err)
		defer hub.Close()
		dev, err := hub.AddDevice("dev-1")
		require.NoError(t, err)
		cert, roots := certify(t, "proxy.local")
		n := memconn.NewNetwork("proxy.local:443")
		defer n.Close()
		p := &httpProxy{target: hub.Dial(testbroker.PortMQTTS)}
		go listen(n, func(c net.Conn) {
			secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}})
			if secure.Handshake() != nil || secure.ConnectionState().NegotiatedProtocol == "h2" { // HTTP/2 is not supported
				c.Close()
				return
			}
			p.serve(secure)
		})
		shared := &tls.Config{RootCAs: roots, NextProtos: []string{"h2", "http/1.1"}} // as net/http leaves it
		d, err := netproxy.New("https://proxy.local", &netproxy.Options{Dial: n.DialContext, TLS: shared})
		require.NoError(t, err)
		sign, err := transport.SharedKey(dev.PrimaryKey)
		require.NoError(t, err)
		creds := &transport.Credentials{Host: dev.HostName, DeviceID: dev.ID, Sign: sign}
		ctx, cancel := context.WithCancel(t.Context())
		s, err := mqtt.New(&mqtt.Options{Network: netopt.Options{Dial: d, TLS: &tls.Config{RootCAs: hub.RootCAs()}}}).Dial(
			ctx, config(creds))
		require.NoError(t, err)
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()
		s.Send([]transport.Item{{Msg: &transport.Message{Body: []byte("x")}}})
		require.NoError(t, hub.WaitMessages(ctx, 1))

		n.Last().Hold(true)
		n.Last().SetBuffer(1) // a stuck proxy must not delay Close
		began := time.Now()
		cancel()
		require.Error(t, <-ran)
		require.LessOrEqual(t, time.Since(began), time.Second)
		n.Last().Hold(false)

		c, err := d(t.Context(), "tcp", dev.HostName+":8883")
		require.NoError(t, err)
		n.Last().Hold(true)
		n.Last().SetBuffer(1)
		began = time.Now()
		require.NoError(t, c.Close())
		require.Zero(t, time.Since(began))
		n.Last().Hold(false)

		d, err = netproxy.New("https://proxy.local", &netproxy.Options{Dial: n.DialContext})
		require.NoError(t, err)
		_, err = mqtt.New(&mqtt.Options{Network: netopt.Options{Dial: d}}).Dial(t.Context(), config(creds))
		require.ErrorIs(t, err, transport.Untrusted)
		require.ErrorContains(t, err, "proxy proxy.local:443")

		shared.Time = func() time.Time { return time.Now().Add(-2 * time.Hour) } // before the certificate
		d, err = netproxy.New("https://proxy.local", &netproxy.Options{Dial: n.DialContext, TLS: shared})
		require.NoError(t, err)
		_, err = mqtt.New(&mqtt.Options{Network: netopt.Options{Dial: d}}).Dial(t.Context(), config(creds))
		require.ErrorIs(t, err, transport.ClockUnset)
		require.ErrorContains(t, err, "proxy proxy.local:443")
	})
}
