package engine

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// The operator of the broker sees in its log why the device leaves.
func TestAViolationIsToldWithItsReasonCode(t *testing.T) {
	for want, packets := range map[byte][][]byte{
		0x81: {{0, 0}, {0xd0, 0x80, 0}, packet(0xd0, "x"), packet(0x40, "\x00"), {0x36, 0},
			publish5(0x30, down, 0, "\x01\x01\x7f", "")},
		0x82: {packet(0x20, "\x00\x00", block("")), packet(0x50, "\x00\x01"), packet(0x90, "\xf0\x01\x00\x00"),
			publish5(0x30, "", 0, "", ""), publish5(0x30, down, 0, "\x01\x01\x01\x01", "")},
		0x94: {publish5(0x30, down, 0, "\x23\x00\x01", "")},
		0x95: {{0x30, 0x80, 0x80, 0x80, 0x01}},
	} {
		for _, p := range packets {
			bubble(t, func(t *testing.T) {
				h := newHub(t)
				r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
				l.Send(p...)
				require.Equal(t, got{First: 0xe0, Body: []byte{want, 0}}, l.Expect(0xe0), "%x", p)
				r.requireLoss(t, transport.Network)
			})
		}
	}
}

// A peer that reads nothing does not keep the session.
func TestAViolationOfAPeerThatReadsNothingEndsTheSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		h.net.SetBuffer(16)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		go r.send(strings.Repeat("x", 100))
		synctest.Wait()
		go func() { _, _ = l.Write([]byte{0, 0}) }()
		require.ErrorContains(t, r.requireLoss(t, transport.Network), "a type that does not exist")
	})
}

// losing is a connection whose writes fail, the first of them before a DISCONNECT is read.
type losing struct {
	Conn
	left   int // writes before those that fail
	failed chan struct{}
	closed atomic.Bool
}

func (c *losing) Write(p []byte) (int, error) {
	switch c.left--; {
	case c.left >= 0:
		return c.Conn.Write(p)
	case c.left == -1:
		close(c.failed)
	}
	return 0, errPulled
}

func (c *losing) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && p[0] == 0xe0 {
		<-c.failed
		time.Sleep(time.Millisecond)
		if c.closed.Load() {
			return 0, net.ErrClosed
		}
	}
	return n, err
}

func (c *losing) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// A broker that ends a connection says why, and the write that fails then may come before the read.
func TestTheBrokersReasonGoesBeforeAFailureToWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(func(ctx context.Context, creds *transport.Credentials) (Conn, error) {
			c, err := h.dial(ctx, creds)
			return &losing{Conn: c, left: 1, failed: make(chan struct{})}, err // the CONNECT
		}, fiveOptions(nil)), "")
		l.Send(packet(0xe0, "\x96\x00")...)
		synctest.Wait()
		r.send("one")
		require.ErrorContains(t, r.requireLoss(t, transport.Throttled), "message rate too high")
	})
}

func TestTheBrokersReasonGoesBeforeAFailureToWriteTheBirth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		o := fiveOptions(nil)
		o.Dialect = &dialect.Topics{Telemetry: "t", Birth: &transport.Message{Topic: "b"}}
		_, _, _, _, err := dialed(t, New(func(ctx context.Context, creds *transport.Credentials) (Conn, error) {
			c, err := h.dial(ctx, creds)
			return &losing{Conn: c, left: 1, failed: make(chan struct{})}, err
		}, o), func() {
			l, _ := h.welcome5(0, "")
			l.Send(packet(0xe0, "\x96\x00")...)
		})
		require.ErrorIs(t, err, transport.Throttled)
	})
}

// Nothing follows a packet of which perhaps a part was written, although the connection stays open.
func TestAFailureToWriteEndsASilentConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		var conn *losing
		r, _ := start5(t, h, New(func(ctx context.Context, creds *transport.Credentials) (Conn, error) {
			c, err := h.dial(ctx, creds)
			conn = &losing{Conn: c, left: 1, failed: make(chan struct{})}
			return conn, err
		}, fiveOptions(nil)), "")
		begun := time.Now()
		r.send("one")
		r.Do(&transport.Request{Op: transport.OpPing})
		require.ErrorIs(t, r.requireLoss(t, transport.Network), errPulled)
		require.Equal(t, reasonTime, time.Since(begun))
		require.Equal(t, -1, conn.left, "writes after the one that failed")
	})
}

// The end of the program does not write behind such a packet either.
func TestADisconnectDoesNotFollowAFailureToWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		var conn *losing
		r, _ := start5(t, h, New(func(ctx context.Context, creds *transport.Credentials) (Conn, error) {
			c, err := h.dial(ctx, creds)
			conn = &losing{Conn: c, left: 1, failed: make(chan struct{})}
			return conn, err
		}, fiveOptions(nil)), "")
		r.send("one")
		r.cancel()
		r.requireLoss(t, transport.Network)
		require.Equal(t, -1, conn.left, "writes after the one that failed")
	})
}

// A violation within the dial is told, too.
func TestAViolationWhileTheBirthWaitsIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		o := fiveOptions(nil)
		o.Dialect = &dialect.Topics{Telemetry: "t", Birth: &transport.Message{Topic: "b"}}
		_, _, _, _, err := dialed(t, New(h.dial, o), func() {
			l, _ := h.welcome5(0, "")
			l.Expect(0x32)
			l.Send(0, 0)
			require.Equal(t, []byte{0x81, 0}, l.Expect(0xe0).Body)
		})
		require.ErrorIs(t, err, transport.Protocol)
	})
}
