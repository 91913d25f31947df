package hubtest

import (
	"fmt"
	"io"
	"time"

	"github.com/gorilla/websocket"

	"github.com/hubline-iot/hubline/testbroker"
)

// WebConn is the client's end of a WebSocket as a stream.
type WebConn struct {
	*websocket.Conn
	message io.Reader
	Frame   int // payload bytes of a frame; 0 = each Write is one frame
}

func (c *WebConn) Read(p []byte) (int, error) {
	for {
		if c.message == nil {
			kind, r, err := c.NextReader()
			if err != nil {
				return 0, err
			}
			if kind != websocket.BinaryMessage {
				return 0, fmt.Errorf("frame of kind %d", kind)
			}
			c.message = r
		}
		n, err := c.message.Read(p)
		if err == io.EOF {
			c.message, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (c *WebConn) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		part := p[n:]
		if c.Frame > 0 {
			part = part[:min(len(part), c.Frame)]
		}
		if err := c.WriteMessage(websocket.BinaryMessage, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return len(p), nil
}

func (c *WebConn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SubscribeBytes encodes a SUBSCRIBE with QoS 1.
func SubscribeBytes(id uint16, filter string) []byte {
	return Frame(0x82, []byte{byte(id >> 8), byte(id)}, Str(filter), []byte{1})
}

// WebDialer dials WebSockets in memory.
// webDialer dials the hub in memory.
func WebDialer(h *testbroker.Hub, protocols ...string) *websocket.Dialer {
	return &websocket.Dialer{NetDialContext: h.Dial(testbroker.PortHTTP), Subprotocols: protocols}
}
