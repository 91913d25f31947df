package web_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// Clients of Event Hubs have a path of their own, where only AMQP is.
func TestWebSocketsForEvents(t *testing.T) {
	for url, name := range map[string]string{"/$servicebus/websocket": "AMQPWSB10", "/$servicebus/websocket/": "amqpwsb10",
		"/%24servicebus/websocket": "amqp"} {
		hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
			ws, _, err := hubtest.WebDialer(h, "mqtt", name).Dial("ws://hub"+url, nil)
			require.NoError(t, err, url)
			require.Equal(t, name, ws.Subprotocol())
			greeting := []byte("AMQP\x03\x01\x00\x00") // with SASL
			require.NoError(t, ws.WriteMessage(websocket.BinaryMessage, greeting))
			_, answer, err := ws.ReadMessage()
			require.NoError(t, err)
			require.Equal(t, greeting, answer[:len(greeting)])
		})
	}
}

func TestWebSocketRequests(t *testing.T) {
	for name, c := range map[string]struct {
		url       string
		protocols []string
		want      string // expected subprotocol; empty = refused
		status    int
	}{
		"as documented":       {"/$iothub/websocket", []string{"mqtt"}, "mqtt", 101},
		"encoded":             {"/%24iothub/websocket", []string{"mqtt"}, "mqtt", 101},
		"no certificate":      {"/$iothub/websocket?iothub-no-client-cert=true", []string{"mqtt"}, "mqtt", 101},
		"capitals":            {"/$iothub/websocket", []string{"MQTT"}, "MQTT", 101},
		"one of several":      {"/$iothub/websocket", []string{"AMQPWSB10", "Mqtt", "mqtt"}, "Mqtt", 101},
		"another path":        {"/mqtt", []string{"mqtt"}, "", 404},
		"MQTT for events":     {"/$servicebus/websocket", []string{"mqtt"}, "", 400},
		"the standard's name": {"/$iothub/websocket", []string{"amqp"}, "", 400},
		"another subprotocol": {"/$iothub/websocket", []string{"mqttv3.1"}, "", 400},
		"no subprotocol":      {"/$iothub/websocket", nil, "", 400},
	} {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			var refused error
			h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: func(e event.Event) {
				if e.Kind == event.Refused {
					refused = e.Err
				}
			}})
			dialer := hubtest.WebDialer(h, c.protocols...)
			dialer.EnableCompression = true
			ws, answer, err := dialer.Dial("ws://hub"+c.url, nil)
			require.NotNil(t, answer)
			require.Equal(t, c.status, answer.StatusCode)
			if c.want == "" {
				require.ErrorIs(t, err, websocket.ErrBadHandshake)
				synctest.Wait()
				require.Error(t, refused)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, ws.Subprotocol())
			w := hubtest.NewWire(t, &hubtest.WebConn{Conn: ws})
			require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
			w.Ping()
		})
	}
}

func TestNotARequestForAWebSocket(t *testing.T) {
	for name, c := range map[string]struct{ send, want string }{
		"plain GET": {"GET /$iothub/websocket HTTP/1.1\r\nHost: hub\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n",
			"HTTP/1.1 400 "},
		"POST":         {"POST /$iothub/websocket HTTP/1.1\r\nHost: hub\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 400 "},
		"not HTTP":     {"\x10\x0c\x00\x04MQTT\r\n\r\n", "HTTP/1.1 400 "},
		"without end":  {"GET / HTTP/1.1\r\nA: " + strings.Repeat("x", 70000), "HTTP/1.1 431 "},
		"half and end": {"GET / HT", "HTTP/1.1 400 "},
		"end":          {"", ""},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
			conn := hubtest.DialPort(t, h, testbroker.PortHTTP)
			defer conn.Close()
			_, err := io.WriteString(conn, c.send)
			require.NoError(t, err)
			if strings.Contains(name, "end") {
				conn.(interface{ CloseWrite() error }).CloseWrite()
			}
			all, err := io.ReadAll(conn)
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(string(all), c.want), "%q", all)
			require.Equal(t, c.want == "", len(all) == 0)
		})
	}
}

// TestFramesMeanNothing sends packets in pieces and several in one frame, in both directions.
func TestFramesMeanNothing(t *testing.T) {
	for _, frame := range []int{1, 3, 1000} {
		hubtest.RunBubble(t, fmt.Sprint(frame), func(t *testing.T) {
			h, d := hubtest.NewHub(t, &testbroker.Options{WebSocketFrame: frame})
			conn := hubtest.DialWeb(t, h)
			conn.Frame = frame
			w := hubtest.NewWire(t, conn)
			all := hubtest.ConnectOf(d).Bytes()
			for id := range uint16(20) {
				all = append(all, hubtest.PublishBytes(2, id+1, hubtest.Events, "body")...)
			}
			w.Send(append(all, 0xc0, 0))
			w.Expect(hubtest.Connack)
			for id := range uint16(20) {
				require.Equal(t, id+1, w.Acked())
			}
			w.Expect(hubtest.Pingresp)
			require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, nil), "an empty frame")
			w.Ping()
			require.Equal(t, 20, h.Len())
		})
	}
}

func TestFragmentedMessageOfAWebSocket(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		conn := hubtest.DialWeb(t, h)
		w := hubtest.NewWire(t, conn)
		require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
		p := hubtest.PublishBytes(2, 1, hubtest.Events, strings.Repeat("x", 100))
		out, err := conn.NextWriter(websocket.BinaryMessage)
		require.NoError(t, err)
		for _, b := range bytes.SplitAfter(p, []byte("e")) {
			_, err = out.Write(b)
			require.NoError(t, err)
		}
		require.NoError(t, out.Close())
		require.Equal(t, uint16(1), w.Acked())
	})
}

func TestTextIsNotAccepted(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		conn := hubtest.DialWeb(t, h)
		w := hubtest.NewWire(t, conn)
		require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
		require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte{0xc0, 0}))
		require.True(t, websocket.IsCloseError(w.End(), websocket.CloseUnsupportedData))
	})
}

func TestEndsOfAWebSocket(t *testing.T) {
	hubtest.RunInBubble(t, "refusal can be read", nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		h.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: 3})
		w := hubtest.NewWire(t, hubtest.DialWeb(t, h))
		require.Equal(t, []byte{0, 3}, w.Connect(hubtest.ConnectOf(d)))
		require.True(t, websocket.IsCloseError(w.End(), websocket.CloseNormalClosure))
	})
	hubtest.RunInBubble(t, "cut", nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.NewWire(t, hubtest.DialWeb(t, h))
		require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
		h.Drop("")
		require.ErrorContains(t, w.End(), "reset")
	})
	hubtest.RunInBubble(t, "client says goodbye", nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		conn := hubtest.DialWeb(t, h)
		w := hubtest.NewWire(t, conn)
		con := hubtest.ConnectOf(d)
		con.Will = &hubtest.Will{Topic: hubtest.Events, Text: "gone"}
		require.Equal(t, []byte{0, 0}, w.Connect(con))
		require.NoError(t, conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), time.Time{}))
		require.True(t, websocket.IsCloseError(w.End(), 1000))
		require.NoError(t, h.WaitMessages(t.Context(), 1), "to MQTT it is no goodbye")
	})
	hubtest.RunInBubble(t, "half-open", nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		conn := hubtest.DialWeb(t, h)
		w := hubtest.NewWire(t, conn)
		require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
		in := h.Inject(fault.Fault{Kind: fault.HalfOpen})
		conn.SetPongHandler(func(string) error { t.Error("a dead link answered"); return nil })
		require.NoError(t, conn.WriteControl(websocket.PingMessage, nil, time.Time{}))
		w.Send([]byte{0xc0, 0})
		conn.SetReadDeadline(time.Now().Add(time.Hour))
		var late net.Error
		require.ErrorAs(t, w.End(), &late)
		require.True(t, late.Timeout())
		require.Equal(t, 1, in.Fired())

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _, err := hubtest.WebDialer(h, "mqtt").DialContext(ctx, "ws://hub/$iothub/websocket", nil)
		require.Error(t, err)
		require.Equal(t, 2, in.Fired())
	})
	hubtest.RunInBubble(t, "nobody asks", nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		start := time.Now()
		conn := hubtest.DialPort(t, h, testbroker.PortHTTP)
		defer conn.Close()
		_, err := conn.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		require.Equal(t, time.Minute, time.Since(start))
	})
}

func TestWebSocketOverTLSInABubble(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		dialer := websocket.Dialer{NetDialContext: h.Dial(testbroker.PortHTTPS), TLSClientConfig: h.ClientTLS(),
			Subprotocols: []string{"mqtt"}}
		ws, _, err := dialer.Dial("wss://hub/$iothub/websocket", http.Header{"Origin": {"https://elsewhere"}})
		require.NoError(t, err)
		w := hubtest.NewWire(t, &hubtest.WebConn{Conn: ws})
		require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
		w.Publish(1, hubtest.Events, "x")
		require.Equal(t, uint16(1), w.Acked())
		h.Inject(fault.Fault{Kind: fault.DropAfterPuback})
		w.Publish(2, hubtest.Events, "x")
		require.Equal(t, uint16(2), w.Acked())
		require.True(t, websocket.IsCloseError(w.End(), 1000))
		w.Conn.Close()
		synctest.Wait()
		in := h.Inject(fault.Fault{Kind: fault.Absent})
		_, err = h.Dial(testbroker.PortHTTPS)(t.Context(), "tcp", "hub")
		require.Error(t, err)
		require.Equal(t, 1, in.Fired())
	})
}
