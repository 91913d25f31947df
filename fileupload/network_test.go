package fileupload_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/netproxy"
)

// A tunnel is a CONNECT proxy that resolves no names: it connects everything to one address.
type tunnel struct {
	to    string
	mu    sync.Mutex
	asked []string
}

func (p *tunnel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.Host)
	p.mu.Unlock()
	far, err := net.Dial("tcp", p.to)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	near, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		far.Close()
		return
	}
	fmt.Fprint(near, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		_, _ = io.Copy(far, near)
		far.Close()
	}()
	_, _ = io.Copy(near, far)
	near.Close()
}

func TestByCertificateThroughAProxy(t *testing.T) {
	hub, err := testbroker.New(&testbroker.Options{Uploads: testbroker.UploadOptions{Host: "store.hub.example.test"}})
	require.NoError(t, err)
	defer hub.Close()
	cert := testbroker.NewClientCert("dev-1", time.Time{}, time.Time{})
	dev, err := hub.AddDeviceX509("dev-1", testbroker.Thumbprint(cert.Leaf))
	require.NoError(t, err)
	addr, err := hub.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	require.NoError(t, err)
	way := &tunnel{to: addr.String()}
	proxy := httptest.NewServer(way)
	defer proxy.Close()
	dial, err := netproxy.New(proxy.URL, nil)
	require.NoError(t, err)

	var asked, shown atomic.Int32
	base := hub.ClientTLS()
	base.ServerName = ""
	storage := base.Clone()
	storage.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		shown.Add(1)
		return &cert, nil
	}
	u, err := fileupload.New(&transport.Credentials{Host: dev.HostName, DeviceID: dev.ID}, &fileupload.Options{
		Network: netopt.Options{TLS: base, Dial: dial, Certificate: func(context.Context) (*tls.Certificate, error) {
			asked.Add(1)
			return &cert, nil
		}}, StorageTLS: storage, BlockSize: 64 * kib,
	})
	require.NoError(t, err)
	defer u.Close()
	body := content(200 * kib)
	result, err := u.Upload(t.Context(), "a", bytes.NewReader(body), -1)
	require.NoError(t, err)
	require.Equal(t, "https://store.hub.example.test/uploads/dev-1/a", result.URL)
	b, ok := hub.Blob("dev-1/a")
	require.True(t, ok)
	require.NoError(t, b.Matches(bytes.NewReader(body)))
	require.Equal(t, int32(1), asked.Load(), "once for each connection to the hub")
	require.Zero(t, shown.Load(), "storage is not told who the device is")
	way.mu.Lock() // net/http may be opening one connection more than it needs
	defer way.mu.Unlock()
	require.Contains(t, way.asked, "CONNECT hub.example.test:443")
	require.Contains(t, way.asked, "CONNECT store.hub.example.test:443")
}

func TestTrustedCertificates(t *testing.T) {
	hub, err := testbroker.New(nil)
	require.NoError(t, err)
	defer hub.Close()
	dev, err := hub.AddDevice("dev-1")
	require.NoError(t, err)
	addr, err := hub.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	require.NoError(t, err)
	upload := func(o fileupload.Options) error {
		o.Network.Addr = addr.String()
		u, err := fileupload.New(credsOf(t, dev), &o)
		require.NoError(t, err)
		defer u.Close()
		_, err = u.Upload(t.Context(), "a", strings.NewReader("a"), 1)
		return err
	}
	require.NoError(t, upload(fileupload.Options{Network: netopt.Options{TLS: hub.ClientTLS()}}))
	failed(t, upload(fileupload.Options{}), transport.Untrusted, "beginning")
	failed(t, upload(fileupload.Options{Network: netopt.Options{TLS: hub.ClientTLS()}, StorageTLS: &tls.Config{}}),
		transport.Untrusted,
		"file")
}

// A config that another client uses, too, has HTTP/2 in it, because net/http adds that to each
// config that it is given.
func TestATLSConfigThatIsSharedWithAnotherClient(t *testing.T) {
	server := httptest.NewUnstartedServer(script{})
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	addr := server.Listener.Addr().String()
	toServer := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	shared := func() *tls.Config {
		c := &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
		other := &http.Client{Transport: &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true, DialContext: toServer}}
		a, err := other.Get("https://example.com/")
		require.NoError(t, err)
		require.NoError(t, a.Body.Close())
		require.Equal(t, 2, a.ProtoMajor)
		other.CloseIdleConnections()
		require.Contains(t, c.NextProtos, "h2")
		return c
	}
	for name, o := range map[string]fileupload.Options{"for both": {Network: netopt.Options{TLS: shared()}},
		"for storage": {Network: netopt.Options{TLS: shared()},
			StorageTLS: shared()}} {
		o.Network.Dial, o.RetryPolicy = toServer, retrypolicy.NoRetry{}
		sign, err := transport.SharedKey("c2VjcmV0LWtleS1vZi10aGUtdGVzdHM=")
		require.NoError(t, err)
		u, err := fileupload.New(&transport.Credentials{Host: "example.com", DeviceID: "d", Sign: sign}, &o)
		require.NoError(t, err)
		_, err = u.Upload(t.Context(), "a", strings.NewReader("a"), 1)
		require.NoError(t, err, name)
		require.NoError(t, u.Close())
	}
}

// A script is a hub and a store with scripted answers. Other requests get a successful answer.
type script map[string]http.HandlerFunc // by the end of the path, or the value of comp

func (s script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Query().Get("comp")
	switch {
	case strings.HasSuffix(r.URL.Path, "/files"), strings.HasSuffix(r.URL.Path, "/notifications"):
		key = r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	case key == "":
		key = "blob"
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	switch answer := s[key]; {
	case answer != nil:
		answer(w, r)
	case key == "files":
		fmt.Fprintf(w, granted, r.Host, "?sig=c2VjcmV0")
	case key == "notifications":
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("x-ms-request-id", "track-1")
		w.WriteHeader(http.StatusCreated)
	}
}

const granted = `{"correlationId":"c","hostName":"%s","containerName":"x","blobName":"d/a","sasToken":"%s"}`

// against uploads a file of 100 KiB.
func (s script) against(t *testing.T, set func(*fileupload.Options)) (fileupload.Result, error) {
	t.Helper()
	return s.with(t, 100*kib, func(*transport.Credentials) {}, set)
}

// with is against for another size and a device with other credentials.
func (s script) with(t *testing.T, size int, change func(*transport.Credentials), set func(*fileupload.Options)) (
	fileupload.Result, error) {
	t.Helper()
	server := httptest.NewServer(s)
	defer server.Close()
	addr := server.Listener.Addr().String()
	o := &fileupload.Options{Network: netopt.Options{Plaintext: true, Addr: addr}, BlockSize: 64 * kib, Parallel: 1,
		RetryPolicy: retrypolicy.NoRetry{}}
	o.Network.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	if set != nil {
		set(o)
	}
	creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "d", Token: func(context.Context) (transport.Token,
		error) {
		return transport.Token{Text: transport.Hide("SharedAccessSignature sr=a&sig=c2VjcmV0&se=1")}, nil
	}}
	change(creds)
	u, err := fileupload.New(creds, o)
	require.NoError(t, err)
	defer u.Close()
	return u.Upload(t.Context(), "a", bytes.NewReader(content(size)), -1)
}

func text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestMalformedPeers(t *testing.T) {
	raw := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(c, text)
				c.Close()
			}
		}
	}
	for name, c := range map[string]struct {
		script script
		kind   transport.Kind
		text   string
	}{
		"not JSON": {script{"files": text(200, "<html>")}, transport.Protocol, "not JSON"},
		"nothing":  {script{"files": text(200, "{}")}, transport.Protocol, "lacks correlationId"},
		"no blob": {
			script{"files": text(200, `{"correlationId":"c","hostName":"h","containerName":"x","sasToken":"?sig=c2VjcmV0"}`)},
			transport.Protocol,
			"lacks"},
		"no host": {script{"files": text(200, fmt.Sprintf(granted, "", "?sig=c2VjcmV0"))}, transport.Protocol,
			"hostName"},
		"host with path": {script{"files": text(200, fmt.Sprintf(granted, "h/evil", "?sig=c2VjcmV0"))}, transport.Protocol,
			"hostName"},
		"host with user": {script{"files": text(200, fmt.Sprintf(granted, "u:p@h", "?sig=c2VjcmV0"))}, transport.Protocol,
			"hostName"},
		"no signature": {script{"files": text(200, fmt.Sprintf(granted, "h", "?sv=1"))}, transport.Protocol, "sasToken"},
		"a second line": {script{"files": text(200, fmt.Sprintf(granted, "h", "?sig=c2VjcmV0 HTTP/1.1"))}, transport.Protocol,
			"sasToken"},
		"bad signature": {script{"files": text(200, fmt.Sprintf(granted, "h", "?sig=%zz"))}, transport.Protocol,
			"sasToken"},
		"redirect":      {script{"files": text(302, "")}, transport.Protocol, "302"},
		"storage moved": {script{"block": text(307, "")}, transport.Protocol, "storage answered 307"},
		"200 for 201":   {script{"block": text(200, "")}, transport.Protocol, "storage answered 200"},
		"hub's error":   {script{"files": text(500, "c2VjcmV0 sig=c2VjcmV0")}, transport.RetryExpired, "hub answered 500"},
		"storage tells": {script{"block": text(403,
			"<Error><Code>AuthorizationFailure</Code><Message>sig=c2VjcmV0</Message></Error>")}, transport.Forbidden,
			"firewall"},
		"not HTTP": {script{"files": raw("220 mail.example.test ESMTP\r\n")}, transport.Protocol,
			"does not speak HTTP"},
		"store not HTTP": {script{"block": raw("220 mail.example.test ESMTP\r\n")}, transport.Protocol,
			"does not speak HTTP"},
		"damaged": {script{"blocklist": raw("220 mail.example.test ESMTP\r\n")}, transport.RetryExpired,
			"network failure"},
		"cut answer": {script{"block": raw("HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\n12")}, transport.RetryExpired,
			"network failure"},
		"notice refused": {script{"notifications": text(400, `{"Message":"{\"errorCode\":400004}"}`)}, transport.Invalid,
			"the file is stored, but the hub was not notified"},
		"notice unknown": {script{"notifications": text(400, `{"Message":"{\"errorCode\":400015}"}`)}, transport.Conflict,
			"400015"},
		"commit conflict": {script{"blocklist": text(400, "<Error><Code>InvalidBlockList</Code></Error>")},
			transport.Conflict,
			"another upload of the same name"},
		"endless answer": {script{"blocklist": text(400, strings.Repeat("<a>", 1<<20))}, transport.Invalid, "400"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := c.script.against(t, nil)
			failed(t, err, c.kind, c.text)
			require.NotContains(t, err.Error(), "c2VjcmV0")
			require.Equal(t, strings.HasPrefix(name, "notice"), result.Stored)
		})
	}
}

func TestTheNotificationHasTheStatus(t *testing.T) {
	var body atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/notifications"):
			b, _ := io.ReadAll(r.Body)
			body.Store(r.Header.Get("Authorization") + " " + r.URL.RawQuery + " " + string(b))
			w.WriteHeader(http.StatusNoContent)
		case strings.HasSuffix(r.URL.Path, "/files"):
			fmt.Fprintf(w, granted, r.Host, "?sig=c2VjcmV0")
		default:
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	}))
	defer server.Close()
	u, err := fileupload.New(&transport.Credentials{Host: "hub.example.test", DeviceID: "d",
		Token: func(context.Context) (transport.Token, error) {
			return transport.Token{Text: transport.Hide("the token")}, nil
		}}, &fileupload.Options{Network: netopt.Options{Plaintext: true, Dial: func(ctx context.Context, network,
		_ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
	}}})
	require.NoError(t, err)
	defer u.Close()
	_, err = u.Upload(t.Context(), "a", strings.NewReader("a"), 1)
	failed(t, err, transport.TooLarge)
	require.Equal(t,
		`the token api-version=2021-04-12 {"correlationId":"c","isSuccess":false,"statusCode":413,`+
			`"statusDescription":"upload failed: too large"}`, body.Load())
}

func TestAnotherLocationForTheRestIsAConflict(t *testing.T) {
	var begun, blocks atomic.Int32
	ended := make(chan string, 10)
	s := script{
		"files": func(w http.ResponseWriter, r *http.Request) {
			answer := fmt.Sprintf(granted, r.Host, "?sig=c2VjcmV0")
			if begun.Add(1) > 1 {
				answer = strings.Replace(fmt.Sprintf(granted, "elsewhere.example.test", "?sig=c2VjcmV0"), `"c"`, `"second"`, 1)
			}
			_, _ = io.WriteString(w, answer)
		},
		"block": func(w http.ResponseWriter, r *http.Request) {
			if blocks.Add(1) > 1 {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.Header().Set("x-ms-request-id", "track-1")
			w.WriteHeader(http.StatusCreated)
		},
		"notifications": func(w http.ResponseWriter, r *http.Request) {
			var n struct {
				CorrelationID string
				IsSuccess     bool
				StatusCode    int
			}
			if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
				t.Error(err)
			}
			ended <- fmt.Sprint(n.CorrelationID, " ", n.IsSuccess, " ", n.StatusCode)
			w.WriteHeader(http.StatusNoContent)
		},
	}
	_, err := s.against(t, nil)
	failed(t, err, transport.Conflict, "another location", "upload again")
	require.Equal(t, "second false 409", <-ended, "it would hold a place for an hour")
	require.Equal(t, "c false 500", <-ended)
}

// A grant that is due for renewal when it arrives makes no refusal look like the first one.
func TestStorageThatRefusesEachGrantIsAskedTwice(t *testing.T) {
	var grants, blocks int
	s := script{
		"files": func(w http.ResponseWriter, r *http.Request) {
			grants++
			w.Header().Set("Date", "Mon, 01 Jan 2029 00:00:00 GMT")
			fmt.Fprintf(w, granted, r.Host, "?sig=c2VjcmV0&se=2029-01-01T00:00:00.000000001Z")
		},
		"block": func(w http.ResponseWriter, _ *http.Request) {
			if blocks++; blocks > 9 {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			text(http.StatusForbidden, "<Error><Code>AuthenticationFailed</Code></Error>")(w, nil)
		},
	}
	_, err := s.against(t, nil)
	failed(t, err, transport.Unauthorized, "storage answered 403")
	require.Equal(t, 2, blocks)
	require.Equal(t, 4, grants)
}

// An empty file is stored too: the hub must not be told that it is in the location of a new grant.
func TestAnotherLocationForTheNoticeIsAConflict(t *testing.T) {
	for _, size := range []int{0, 1} {
		var begun, notices atomic.Int32
		s := script{
			"files": func(w http.ResponseWriter, r *http.Request) {
				answer := fmt.Sprintf(granted, r.Host, "?sig=c2VjcmV0")
				if begun.Add(1) > 1 {
					answer = strings.Replace(answer, `"x"`, `"another"`, 1)
				}
				_, _ = io.WriteString(w, answer)
			},
			"notifications": func(w http.ResponseWriter, _ *http.Request) {
				if notices.Add(1) == 1 {
					text(http.StatusBadRequest, `{"Message":"ErrorCode:ExpiredFileUploadCorrelationId;"}`)(w, nil)
					return
				}
				w.WriteHeader(http.StatusNoContent)
			},
		}
		_, err := s.with(t, size, func(*transport.Credentials) {}, nil)
		failed(t, err, transport.Conflict, "another location", "upload again")
	}
}

func TestManyUploadsAtATime(t *testing.T) {
	hub, err := testbroker.New(&testbroker.Options{Seed: 1})
	require.NoError(t, err)
	defer hub.Close()
	dev, err := hub.AddDevice("dev-1")
	require.NoError(t, err)
	addr, err := hub.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	require.NoError(t, err)
	hub.Inject(fault.Fault{Kind: fault.CutBlobBody, Probability: 0.1, Times: -1})
	u, err := fileupload.New(credsOf(t, dev), &fileupload.Options{Network: netopt.Options{TLS: hub.ClientTLS(),
		Addr: addr.String()},
		BlockSize: 64 * kib, Parallel: 4})
	require.NoError(t, err)
	var all sync.WaitGroup
	for i := range hubdata.MaxUploads {
		all.Go(func() {
			body := content(500*kib + i)
			name := fmt.Sprint("file-", i)
			if _, err := u.Upload(t.Context(), name, bytes.NewReader(body), -1); err != nil {
				t.Error(err)
				return
			}
			b, _ := hub.Blob("dev-1/" + name)
			if err := b.Matches(bytes.NewReader(body)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.NoError(t, u.Close())
	require.NoError(t, u.Close())
	require.NoError(t, hub.WaitUploads(t.Context(), hubdata.MaxUploads))
}

func TestTwoUploadsOfOneNameDoNotMix(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		bodies := [][]byte{bytes.Repeat([]byte("a"), 300*kib), bytes.Repeat([]byte("b"), 300*kib)}
		errs := make(chan error)
		for i, body := range bodies {
			go func() {
				_, err := r.Upload(t.Context(), "a", &pausing{Reader: bytes.NewReader(body),
					pause: time.Duration(i+1) * time.Second}, -1)
				errs <- err
			}()
		}
		var conflicts int
		for range bodies {
			if err := <-errs; errors.Is(err, transport.Conflict) {
				conflicts++
			} else {
				require.NoError(t, err)
			}
		}
		require.Equal(t, 1, conflicts)
		b, _ := r.hub.Blob("dev-1/a")
		require.NoError(t, b.Matches(bytes.NewReader(bodies[0])))
	})
}

// A slowConn is a link of rate bytes per second, in steps of 64 bytes.
type slowConn struct {
	net.Conn
	rate   int
	closed chan struct{}
	once   sync.Once
}

func (c *slowConn) Write(b []byte) (n int, err error) {
	for n < len(b) {
		piece := b[n:min(n+64, len(b))]
		select {
		case <-time.After(time.Duration(len(piece)) * time.Second / time.Duration(c.rate)):
		case <-c.closed:
			return n, net.ErrClosed
		}
		k, err := c.Conn.Write(piece)
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}

func (c *slowConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A link that keeps to MinRate is not dead, however slow that is. net/http alone would read more of
// a block at a time than the link carries in RequestTimeout.
func TestTheSlowestLinkThatDoesNotCountAsDead(t *testing.T) {
	for _, c := range []struct {
		minRate int64
		rate    int
		kind    error
	}{
		{8 << 10, 10_000, nil}, {1 << 10, 1200, nil}, {256, 1000, nil}, {256, 300, nil}, {20, 25, nil},
		{256, 100, transport.Timeout}, {1 << 10, 600, transport.Timeout},
	} {
		testkit.Bubble(t, func(t *testing.T) {
			network := memconn.NewNetwork("hub.example.test:80")
			server := &http.Server{Handler: script{}}
			served := make(chan struct{})
			go func() {
				defer close(served)
				_ = server.Serve(network)
			}()
			defer func() {
				require.NoError(t, server.Close())
				<-served
			}()
			body := content(64 * kib)
			u, err := fileupload.New(&transport.Credentials{Host: "hub.example.test", DeviceID: "d",
				Token: func(context.Context) (transport.Token, error) {
					return transport.Token{Text: transport.Hide("the token")}, nil
				}}, &fileupload.Options{
				Network: netopt.Options{Plaintext: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
					conn, err := network.DialContext(ctx, "tcp", "hub.example.test:80")
					return &slowConn{Conn: conn, rate: c.rate, closed: make(chan struct{})}, err
				}}, BlockSize: int64(len(body)), MinRate: c.minRate, RetryPolicy: retrypolicy.NoRetry{}, NotifyTimeout: time.Hour,
			})
			require.NoError(t, err)
			defer u.Close()
			_, err = u.Upload(t.Context(), "a", bytes.NewReader(body), int64(len(body)))
			require.ErrorIs(t, err, c.kind, "%d B/s where %d are enough: %v", c.rate, c.minRate, err)
			require.NotErrorIs(t, err, transport.ErrOutcomeUnknown, "storage cannot have a file that was sent in part")
		})
	}
}
