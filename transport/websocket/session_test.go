package websocket

import (
	"context"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// publish returns the PUBLISH of a cloud-to-device message.
func publish(id byte, body string) []byte {
	topic := "devices/dev-1/messages/devicebound/%24.to=x"
	p := append([]byte{0, byte(len(topic))}, topic...)
	p = append(append(p, 0, id), body...)
	return append([]byte{0x32, byte(len(p))}, p...)
}

// Packets may be split and joined across frames in any way.
func TestFramesAreNoPackets(t *testing.T) {
	one, two := publish(1, "one"), publish(2, "two")
	for name, write := range map[string]func(w *server){
		"a byte in each frame": func(w *server) {
			for _, b := range append(one, two...) {
				_ = w.writeFrame(opBinary, true, []byte{b})
			}
		},
		"all in one": func(w *server) { _ = w.writeFrame(opBinary, true, append(one, two...)) },
		"continued, with controls and empty frames between": func(w *server) {
			_ = w.writeFrame(opBinary, false, nil)
			_ = w.writeFrame(opContinuation, false, one[:5])
			_ = w.writeFrame(opPing, true, []byte("between"))
			_ = w.writeFrame(opContinuation, false, nil)
			_ = w.writeFrame(opPong, true, nil)
			_ = w.writeFrame(opContinuation, true, append(one[5:], two[:1]...))
			_ = w.writeFrame(opBinary, true, nil)
			_ = w.writeFrame(opBinary, true, two[1:])
		},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			h := newHub(t)
			r, w := start(t, h, h.options(nil))
			write(w)
			synctest.Wait()
			require.Equal(t, []string{"one", "two"}, r.Bodies())
			require.Empty(t, r.ran)
			w.Conn.(*memconn.Conn).Reset()
			require.Error(t, <-r.ran)
		})
	}
}

// A frame may arrive together with the answer to the request.
func TestAFrameRightBehindTheUpgradeIsRead(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		a, b := memconn.Pair("a", "b")
		defer a.Close()
		go func() {
			w, err := readRequest(b)
			require.NoError(t, err)
			// with an extra line end, which cutter removes
			require.NoError(t, w.upgrade("Sec-WebSocket-Protocol: MQTT\r\n\r\n\x82\x03abc\x82\x01d"))
		}()
		b.SetBuffer(0)
		c, err := MQTT(nil).Open(t.Context(), &cutter{Conn: a}, netopt.Peer{Host: "h"})
		require.NoError(t, err)
		got := make([]byte, 4)
		_, err = io.ReadFull(c, got)
		require.NoError(t, err)
		require.Equal(t, "abcd", string(got))
	})
}

// cutter removes "\r\n" from the end of the first bytes read.
type cutter struct {
	net.Conn
	cut bool
}

func (c *cutter) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.cut {
		c.cut = true
		n -= 2
	}
	return n, err
}

// A session sets read deadlines and goes on when they have passed, wherever the bytes stopped.
func TestReadGoesOnAfterATimeout(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		a, b := memconn.Pair("a", "b")
		defer a.Close()
		go func() {
			w, err := readRequest(b)
			require.NoError(t, err)
			require.NoError(t, w.upgrade("Sec-WebSocket-Protocol: mqtt\r\n"))
		}()
		c, err := MQTT(nil).Open(t.Context(), a, netopt.Peer{Host: "h"})
		require.NoError(t, err)
		var got []byte
		for _, sent := range []byte("\x02\x7e\x00\x02ab\x89\x02xy\x80\x01c\x8a\x00\x82\x01d") {
			_, err = b.Write([]byte{sent})
			require.NoError(t, err)
			require.NoError(t, a.SetReadDeadline(time.Now().Add(time.Second)))
			p := make([]byte, 8)
			n, err := c.Read(p)
			if got = append(got, p[:n]...); err == nil {
				n, err = c.Read(p)
				require.Zero(t, n)
			}
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		}
		require.Equal(t, "abcd", string(got))
	})
}

// Each write is whole binary frames, not fragments: some servers accept nothing else.
func TestWritesAreWholeBinaryFrames(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, w := start(t, h, h.options(nil))
		w.Conn.(*memconn.Conn).SetBuffer(0)
		r.send(strings.Repeat("x", 100_000), "small")
		size := 0
		for size < 100_000 {
			f, err := w.nextFrame()
			require.NoError(t, err)
			require.Equal(t, byte(opBinary), f.op)
			require.True(t, f.fin)
			require.LessOrEqual(t, len(f.payload), 16<<10)
			size += len(f.payload)
		}
		require.Empty(t, r.ran)
	})
}

func TestBothProtocolsAreClosedInOrder(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, w := start(t, h, h.options(nil))
		r.send("one")
		synctest.Wait()
		r.cancel()
		var ops []byte
		var bytes []byte
		for {
			f, err := w.nextFrame()
			if err != nil {
				require.Equal(t, io.EOF, err)
				break
			}
			ops, bytes = append(ops, f.op), append(bytes, f.payload...)
		}
		require.Error(t, <-r.ran)
		require.Equal(t, byte(opClose), ops[len(ops)-1])
		require.Equal(t, "\xE0\x00\x03\xE8", string(bytes[len(bytes)-4:]), "DISCONNECT, code 1000")
		requireClosed(t, h)
	})
}

// A hub may ping an idle connection, and closes it without a pong.
func TestPingsAreAnsweredOnAnIdleConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := newHub(t)
		_, w := start(t, h, h.options(nil))
		go func() { _, _ = io.Copy(io.Discard, w) }()
		for _, data := range []string{"", "one", strings.Repeat("x", 125)} {
			require.NoError(t, w.writeFrame(opPing, true, []byte(data)))
			synctest.Wait()
			require.Equal(t, data, <-w.pongs)
		}
		w.Conn.(*memconn.Conn).Reset()
	})
}

// The reading goroutine must not write the answer to a ping: the peer may not read until we read.
func TestPingsDoNotStopReading(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, w := start(t, h, h.options(nil))
		synctest.Wait()
		h.net.Last().SetBuffer(100) // the hub does not read any further
		for i := range byte(200) {
			require.NoError(t, w.writeFrame(opPing, true, []byte("are you there?")))
			_, err := w.Write(publish(i+1, "x"))
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Len(t, r.Bodies(), 200)
		go func() { _, _ = io.Copy(io.Discard, w) }()
		time.Sleep(time.Second)
		require.NotEmpty(t, w.pongs)
		require.Empty(t, r.ran)
		w.Conn.(*memconn.Conn).Reset()
	})
}

func TestAnyLossOverWebSocketIsFoundAndRetryable(t *testing.T) {
	for name, c := range map[string]struct {
		cut  func(h *hub, r *running, w *server)
		kind transport.Kind
		text string
		most time.Duration
	}{
		"a close frame": {func(_ *hub, _ *running, w *server) {
			_ = w.writeFrame(opClose, true, []byte("\x03\xE9going"))
		}, transport.Network, `the hub closed the WebSocket with code 1001: "going"`, 0},
		"a close frame, no code": {func(_ *hub, _ *running, w *server) {
			_ = w.writeFrame(opClose, true, nil)
		}, transport.Network, "code 1005", 0},
		"the end of the stream": {func(_ *hub, _ *running, w *server) {
			_ = w.Conn.Close()
		}, transport.Network, "the hub closed the connection", 0},
		"a reset": {func(_ *hub, _ *running, w *server) {
			w.Conn.(*memconn.Conn).Reset()
		}, transport.Network, "connection reset", 0},
		"half a frame": {func(_ *hub, _ *running, w *server) {
			_, _ = w.Conn.Write([]byte{0x82, 9, 0x30})
			_ = w.Conn.Close()
		}, transport.Network, "the hub closed", 0},
		"text": {func(_ *hub, _ *running, w *server) {
			_ = w.writeFrame(opText, true, []byte("hello"))
		}, transport.Network, "text", 0},
		"a reserved bit": {func(_ *hub, _ *running, w *server) {
			_, _ = w.Conn.Write([]byte{0xC2, 1, 0})
		}, transport.Network, "RSV", 0},
		"a huge frame of nothing": {func(_ *hub, _ *running, w *server) {
			_, _ = w.Conn.Write([]byte{0x82, 127, 0x7f, 255, 255, 255, 255, 255, 255, 255, 0x40, 255, 255, 255, 0x7f})
		}, transport.Network, "packet of type 4", 0},
		"silence": {func(*hub, *running, *server) {}, transport.Timeout, "did not answer a ping",
			90 * time.Second},
		"a peer that is full": {func(h *hub, r *running, _ *server) {
			h.net.Last().SetBuffer(1)
			r.send("stuck")
		}, transport.Timeout, "accepts no data", time.Minute},
		"a peer that is full, and a close frame": {func(h *hub, _ *running, w *server) {
			h.net.Last().SetBuffer(1)
			_ = w.writeFrame(opClose, true, nil)
		}, transport.Network, "code 1005", time.Second / 4}, // the close handshake
		"a peer that is full, and a ping": {func(h *hub, _ *running, w *server) {
			h.net.Last().SetBuffer(1)
			_ = w.writeFrame(opPing, true, nil)
		}, transport.Network, "a reply of the tunnel was not written", time.Minute},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			h := newHub(t)
			r, w := start(t, h, h.options(nil))
			synctest.Wait()
			began := time.Now()
			c.cut(h, r, w)
			err := <-r.ran
			require.ErrorIs(t, err, c.kind, "%v", err)
			require.ErrorContains(t, err, c.text)
			require.True(t, errfilter.Retryable(err))
			require.Equal(t, transport.OpRun, transport.Find(err).Op)
			require.LessOrEqual(t, time.Since(began), c.most)
			requireClosed(t, h)
		})
	}
}

func TestTimeoutsKeepTheirCause(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, _ := start(t, h, h.options(nil))
		synctest.Wait()
		h.net.Last().SetBuffer(1)
		r.send("stuck")
		require.ErrorIs(t, <-r.ran, os.ErrDeadlineExceeded)
	})
}

func TestDisconnectFromAStuckPeerTakesLessThanASecond(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, _ := start(t, h, h.options(nil))
		synctest.Wait()
		h.net.Last().SetBuffer(1)
		r.send("stuck")
		time.Sleep(time.Second)
		began := time.Now()
		r.cancel()
		require.Error(t, <-r.ran)
		require.LessOrEqual(t, time.Since(began), time.Second)
	})
}

func TestTheEndOfCtxEndsTheUpgrade(t *testing.T) {
	for name, play := range map[string]func(h *hub){
		"while the request cannot be sent": func(h *hub) { h.net.SetBuffer(1) },
		"while the answer is waited for":   func(*hub) {},
		"in the middle of the answer": func(h *hub) {
			go func() { _, _ = io.WriteString(h.accept(), "HTTP/1.1 101 ") }()
		},
		"in the middle of a refusal": func(h *hub) {
			go func() { _, _ = io.WriteString(h.accept(), "HTTP/1.1 403 No\r\nContent-Length: 10\r\n") }()
		},
		"before the CONNACK": func(h *hub) {
			go func() {
				_, err := accept(h.accept())
				require.NoError(t, err)
			}()
		},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			h := newHub(t)
			play(h)
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(3*time.Second, cancel)
			began := time.Now()
			_, _, err := dial(ctx, h.options(nil))
			require.Equal(t, 3*time.Second, time.Since(began))
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, transport.Network)
			requireClosed(t, h)
		})
	}
}

// Both ends write at full speed, with pings in between. Some messages are refused.
func TestTrafficBothWaysDoesNotLockUp(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const n = 10_000
		h := newHub(t)
		h.net.SetBuffer(4 << 10)
		r, w := start(t, h, h.options(nil))
		got := make(chan int)
		go func() {
			count, l := 0, testkit.NewMQTTLink(t, w)
			for count < n {
				p, err := l.Next()
				if err != nil {
					break
				}
				if p.First>>4 == 3 {
					count++
					id := p.Rest()
					_, _ = w.Write([]byte{0x40, 2, id[0], id[1]})
				}
			}
			got <- count
		}()
		go func() {
			for i := range n {
				if i%100 == 0 {
					_ = w.writeFrame(opPing, true, []byte("x"))
				}
				_, _ = w.Write(publish(byte(i%255+1), "down"))
			}
		}()
		go func() {
			for range w.pongs {
			}
		}()
		for i := range n {
			r.Send([]transport.Item{{Tag: uint16(i), Msg: &transport.Message{Body: []byte("up")}}})
		}
		require.Equal(t, n, <-got)
		synctest.Wait()
		require.Len(t, r.AllResults(), n)
		require.Len(t, r.Bodies(), n)
		w.Conn.(*memconn.Conn).Reset()
		require.Error(t, <-r.ran)
		close(w.pongs)
	})
}
