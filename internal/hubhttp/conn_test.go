package hubhttp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// dial returns a connection, and its other end.
func dial(t *testing.T) (*hubhttp.Conn, *memconn.Conn) {
	t.Helper()
	near, far := memconn.Pair("device:1", "hub:80")
	conn, err := hubhttp.Dial(t.Context(), &dialer.Dialer{Protocol: &hubhttp.Protocol, Network: netopt.Options{
		Plaintext: true, Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil },
	}, ALPN: []string{"http/1.1"}}, &transport.Credentials{Host: "hub", DeviceID: "d"})
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		_ = far.Close()
	})
	return conn, far
}

func request(header http.Header) *hubhttp.Request {
	return &hubhttp.Request{Method: http.MethodPost, URL: &url.URL{Scheme: "http", Host: "hub", Path: "/"},
		Header: header, Body: []byte("body")}
}

// An exchange that fails before its first byte was written was not sent; any other one was.
func TestNothingWasSentBeforeTheFirstByte(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		conn, _ := dial(t)
		_, err := conn.Exchange(t.Context(), request(http.Header{"X": {"a\nb"}})) // net/http refuses it
		require.Error(t, err)
		conn.Close()
		require.False(t, conn.Sent())
	})
	testkit.Bubble(t, func(t *testing.T) {
		conn, far := dial(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := conn.Exchange(ctx, request(http.Header{}))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		conn.Abort()
		conn.Close()
		require.True(t, conn.Sent())
		text, err := io.ReadAll(far)
		require.NoError(t, err)
		require.Contains(t, string(text), "POST / HTTP/1.1")
	})
	testkit.Bubble(t, func(t *testing.T) { // the exchange before does not count
		conn, far := dial(t)
		go func() {
			b := make([]byte, 1<<10)
			_, _ = far.Read(b)
			_, _ = io.WriteString(far, "HTTP/1.1 204 No Content\r\n\r\n")
		}()
		_, err := conn.Exchange(t.Context(), request(http.Header{}))
		require.NoError(t, err)
		require.True(t, conn.Sent())
		_, err = conn.Exchange(t.Context(), request(http.Header{"X": {"a\nb"}}))
		require.Error(t, err)
		conn.Close()
		require.False(t, conn.Sent())
	})
}
