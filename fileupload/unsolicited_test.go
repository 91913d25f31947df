package fileupload_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// inMemory runs f in a bubble with an Uploader whose hub and storage are s. say writes to all
// connections so far.
func (s script) inMemory(t *testing.T, f func(t *testing.T, u *fileupload.Uploader, say func(text string))) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		network := memconn.NewNetwork("hub.example.test:80")
		server := &http.Server{Handler: s}
		var served sync.WaitGroup
		var conns []net.Conn
		var mu sync.Mutex
		server.ConnState = func(c net.Conn, state http.ConnState) {
			if state == http.StateNew {
				mu.Lock()
				conns = append(conns, c)
				mu.Unlock()
			}
		}
		served.Go(func() { _ = server.Serve(network) })
		u, err := fileupload.New(&transport.Credentials{Host: "hub.example.test", DeviceID: "d",
			Token: func(context.Context) (transport.Token, error) {
				return transport.Token{Text: transport.Hide("SharedAccessSignature sr=a&sig=c2VjcmV0&se=1")}, nil
			}}, &fileupload.Options{
			Network: netopt.Options{Plaintext: true, Dial: func(ctx context.Context, netw, _ string) (net.Conn, error) {
				return network.DialContext(ctx, netw, "hub.example.test:80")
			}}, BlockSize: 64 * kib, Parallel: 1, RetryPolicy: retrypolicy.NoRetry{},
		})
		require.NoError(t, err)
		defer func() {
			require.NoError(t, u.Close())
			mu.Lock()
			for _, c := range conns {
				_ = c.Close()
			}
			mu.Unlock()
			require.NoError(t, server.Close())
			_ = network.Close()
			served.Wait()
		}()
		f(t, u, func(text string) {
			mu.Lock()
			defer mu.Unlock()
			for _, c := range conns {
				_, _ = io.WriteString(c, text)
			}
		})
	})
}

const unsolicited = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: SharedAccessSignature sig=c2VjcmV0\r\n\r\n"

// The connection with the bytes is replaced without a retry, and the bytes are not logged.
func TestUnsolicitedBytesAreNotLogged(t *testing.T) {
	body := content(100 * kib)
	upload := func(t *testing.T, u *fileupload.Uploader) {
		t.Helper()
		_, err := u.Upload(t.Context(), "a", bytes.NewReader(body), -1)
		require.NoError(t, err)
		synctest.Wait()
	}
	const created = "HTTP/1.1 201 Created\r\nX-Ms-Request-Id: t\r\n"
	for name, answer := range map[string]string{
		"Content-Length": created + "Content-Length: 2\r\n\r\n{}",
		"chunked":        created + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"no content":     created + "Content-Length: 0\r\n\r\n",
	} {
		raw := func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(c, answer+unsolicited)
			}
		}
		t.Run("behind an answer of storage: "+name, func(t *testing.T) {
			script{"block": raw, "blocklist": raw}.inMemory(t, func(t *testing.T, u *fileupload.Uploader, _ func(string)) {
				require.Empty(t, testkit.Logged(func() { upload(t, u) }))
			})
		})
	}
	t.Run("behind an answer of the hub", func(t *testing.T) {
		script{"notifications": func(w http.ResponseWriter, r *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n"+unsolicited)
			}
		}}.inMemory(t, func(t *testing.T, u *fileupload.Uploader, _ func(string)) {
			require.Empty(t, testkit.Logged(func() { upload(t, u) }))
		})
	})
	t.Run("idle", func(t *testing.T) {
		script{}.inMemory(t, func(t *testing.T, u *fileupload.Uploader, say func(string)) {
			require.Empty(t, testkit.Logged(func() {
				upload(t, u)
				say(unsolicited)
				synctest.Wait()
				upload(t, u)
			}))
		})
	})
}
