package web_test

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// FuzzWebSocket sends bytes instead of a WebSocket request, and then into a WebSocket: the hub must
// end the connection or wait for more, and serve other connections.
func FuzzWebSocket(f *testing.F) {
	const request = "GET /$iothub/websocket HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: " +
		"websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: " +
		"mqtt\r\n\r\n"
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false)
	f.Add([]byte{0x82, 0x82, 0, 0, 0, 0, 0xc0, 0}, true)
	f.Add([]byte{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, true)
	f.Add([]byte{0x88, 0x80, 0, 0, 0, 0}, true)
	f.Fuzz(func(t *testing.T, p []byte, upgraded bool) {
		h, err := testbroker.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		conn, err := h.Dial(testbroker.PortHTTP)(t.Context(), "tcp", "hub")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if upgraded {
			p = append([]byte(request), p...)
		}
		conn.Write(p)
		conn.(interface{ CloseWrite() error }).CloseWrite()
		conn.SetReadDeadline(time.Now().Add(hubtest.WaitLimit))
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
	})
}
