package mqtt

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/transport"
)

// The tests of this file cover known pitfalls of the library; the comments name them.

// The library takes no context: a dial would last as long as the network blocks.
func TestTheEndOfCtxEndsTheDialAtOnce(t *testing.T) {
	stages := map[string]func(h *hub, o *Options){
		"while the network hangs": func(h *hub, _ *Options) { h.net.Hang(true) },
		"in the TLS handshake":    func(_ *hub, o *Options) { o.Network.Plaintext = false },
		"before the CONNACK":      func(*hub, *Options) {},
	}
	for name, prepare := range stages {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newHub(t)
				o := h.options()
				prepare(h, o)
				ctx, cancel := context.WithCancel(context.Background())
				time.AfterFunc(3*time.Second, cancel)
				began := time.Now()
				_, err := New(o).Dial(ctx, &transport.Config{Creds: testCreds(t), Sink: new(sink)})
				require.Equal(t, 3*time.Second, time.Since(began))
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, transport.ScopeConnection, transport.Find(err).Scope)
				requireNothingLeft(t, h)
			})
		})
	}
}

// requireNothingLeft fails if the client's end of the last connection is open.
func requireNothingLeft(t *testing.T, h *hub) {
	t.Helper()
	if c := h.net.Last(); c != nil {
		_, err := c.Write([]byte{0})
		require.ErrorIs(t, err, net.ErrClosed)
	}
}

// ctx may end at the moment in which the library becomes connected.
func TestCtxThatEndsWithTheConnackLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		ctx, cancel := context.WithCancel(context.Background())
		o := h.options()
		o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := h.net.DialContext(ctx, network, addr)
			return &readHook{c, cancel}, err
		}
		go func() {
			l := h.accept()
			l.send(typeConnack<<4, 2, 0, 0)
			_, _ = l.drain()
		}()
		_, err := New(o).Dial(ctx, &transport.Config{Creds: testCreds(t), Sink: new(sink)})
		require.ErrorIs(t, err, context.Canceled)
		requireNothingLeft(t, h)
	})
}

// readHook calls a function after a read.
type readHook struct {
	net.Conn
	hook func()
}

func (c *readHook) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.hook()
	}
	return n, err
}

// Messages that are queued at the hub follow the CONNACK at once, before the caller can subscribe
// or start Run.
func TestNothingIsReportedBeforeRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		var l *link
		s, k, ctx, cancel := dial(t, h.options(), func() {
			l = h.accept()
			l.send(append([]byte{typeConnack << 4, 2, 1, 0}, publishBytes("devices/dev-1/messages/devicebound/%24.mid=m1", 7,
				"early")...)...)
		})
		time.Sleep(time.Second)
		require.Empty(t, k.messages)
		run(t, s, k, ctx, cancel)
		synctest.Wait()
		require.Len(t, k.messages, 1)
		require.Equal(t, "early", string(k.messages[0].Body))
	})
}

// The library writes PINGREQ without a deadline; behind a full buffer it never checks the ping's
// time-out.
func TestAPeerThatStopsReadingIsFound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		h.net.SetBuffer(1000)
		r, _ := start(t, h, h.options())
		began := time.Now()
		body := strings.Repeat("x", 400)
		r.send(body, body, body, body)
		err := <-r.ran
		require.ErrorIs(t, err, transport.Timeout)
		require.Equal(t, time.Minute, time.Since(began), "its kernel answers")
		require.NotContains(t, err.Error(), "closed")
	})
}

// A stuck peer, to which DISCONNECT cannot be written, must not block disconnect; nor must TLS,
// which waits 5 s to write close_notify.
func TestDisconnectFromAStuckPeerTakesLessThanASecond(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "with TLS": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newHub(t)
				o := h.options()
				if secure {
					h.serveTLS(t, o)
				}
				r, _ := start(t, h, o)
				synctest.Wait()
				h.net.Last().SetBuffer(1)
				r.send("stuck")
				time.Sleep(time.Second)
				began := time.Now()
				r.cancel()
				require.Error(t, <-r.ran)
				require.LessOrEqual(t, time.Since(began), time.Second)
			})
		})
	}
}

// With TLS, DISCONNECT is written, but close_notify blocks.
func TestDisconnectIsBoundedWhenOnlyCloseNotifyIsStuck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := memconn.Pair("a", "b")
		defer b.Close()
		c := newConn(&slowCloser{Conn: a}, a)
		_, _ = c.Write([]byte{typeDisconnect << 4, 0})
		began := time.Now()
		_ = c.Close()
		require.LessOrEqual(t, time.Since(began), time.Second/2)
	})
}

// slowCloser takes 5 s to close unless the socket below is closed.
type slowCloser struct{ *memconn.Conn }

func (c *slowCloser) Close() error {
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, _ = c.Read(make([]byte, 1))
	return nil
}

// Ordered delivery with the library's acknowledgements deadlocks when both ends send much: its
// reader waits for its writer, the writer for the peer, the peer for our reader.
func TestTrafficBothWaysDoesNotLockUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 300
		h := newHub(t)
		h.net.SetBuffer(4 << 10)
		r, l := start(t, h, h.options())
		body := strings.Repeat("x", 5000)
		got := make(chan int)
		go func() { // a hub that does not read while it writes
			count := 0
			for i := range n {
				l.publish("devices/dev-1/messages/devicebound/a=b", uint16(i+1), body)
				for count < i-3 {
					if p, err := l.next(); err != nil {
						break
					} else if p.kind == typePublish {
						count++
						l.puback(p.id())
					}
				}
			}
			for count < n {
				p, err := l.next()
				if err != nil {
					break
				}
				if p.kind == typePublish {
					count++
					l.puback(p.id())
				}
			}
			got <- count
		}()
		for i := range n {
			r.Send([]transport.Item{{Tag: uint16(i), Msg: &transport.Message{Body: []byte(body)}}})
			for len(r.sink.seen()) > 0 {
				r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.takeRef()})
			}
		}
		require.Equal(t, n, <-got)
		synctest.Wait()
		require.Len(t, r.sink.tags(), n)
		require.Len(t, r.sink.messages, n)
	})
}

func (s *sink) seen() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refs
}

func (s *sink) takeRef() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	ref := s.refs[0]
	s.refs = s.refs[1:]
	return ref
}
