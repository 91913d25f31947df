package testbroker_test

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/hubline-iot/hubline/testbroker"
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
		conn.SetReadDeadline(time.Now().Add(waitLimit))
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
	})
}

// FuzzBroker sends bytes to a plain broker, before and after the CONNECT: the broker must end the
// connection or wait for more, keep its promises about what it stored, and serve other connections.
func FuzzBroker(f *testing.F) {
	for _, all := range packets.TPacketData {
		for _, p := range all {
			f.Add(p.RawBytes, true, true)
			f.Add(p.RawBytes, false, false)
		}
	}
	f.Fuzz(func(t *testing.T, p []byte, five, connected bool) {
		h, d := newBroker(t, &testbroker.BrokerOptions{TopicAliases: 2, ReceiveMaximum: 3, CommandQoS: 2})
		version := byte(4)
		if five {
			version = 5
		}
		c := dialPlain(t, h, version)
		if connected {
			c.send(plainConnect(d, version))
		}
		c.write(p)
		c.conn.(interface{ CloseWrite() error }).CloseWrite()
		c.conn.SetReadDeadline(time.Now().Add(waitLimit))
		if _, err := io.Copy(io.Discard, c.conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		for _, m := range h.Messages() {
			if m.DeviceID != "dev-1" || m.QoS > 1 || m.QoS == 0 && m.Dup || !strings.HasPrefix(m.Topic, "devices/dev-1/up") {
				t.Errorf("%+v", m)
			}
		}
		loginPlain(t, h, d, version).ping()
	})
}
