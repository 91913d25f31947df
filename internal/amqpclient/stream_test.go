package amqpclient

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

// pipe returns a socket and its peer.
func pipe(t *testing.T) (*dialer.ProgressConn, *memconn.Conn) {
	near, far := memconn.Pair("near", "far")
	t.Cleanup(func() { _ = far.Close() })
	return dialer.NewProgressConn(near, 10*time.Second), far
}

// open returns a connection whose opening is over, and its peer.
func open(t *testing.T) (*Conn, *memconn.Conn) {
	line, far := pipe(t)
	c := newConn(line, line, time.Hour)
	c.sessions.Store(1)
	c.start()
	t.Cleanup(func() {
		c.Fail(ErrClosed)
		c.Close()
	})
	return c, far
}

// put appends bytes to what is pending.
func (c *Conn) put(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.grow(len(b))
	c.out.pending = append(c.out.pending, b...)
}

// A peer that does not read ends the connection, and those that wait for room are called.
func TestAPeerThatReadsNothingTimesOut(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, far := open(t)
		far.SetBuffer(1 << 10)
		c.put(make([]byte, HighWater))
		called := false
		wake := func() { called = true }
		require.True(t, c.Full(1, &wake))
		c.put(make([]byte, 1<<20))
		began := time.Now()
		c.Flush()
		require.False(t, called)
		require.Equal(t, time.Minute, time.Since(began), "its kernel answers")
		require.ErrorIs(t, c.Loss(), os.ErrDeadlineExceeded)
		require.ErrorContains(t, c.Loss(), "the hub accepts no data")
		c.Flush()
		c.Kick()
	})
}

// pulled is a connection whose writes fail.
type pulled struct {
	net.Conn
	writes int
}

func (p *pulled) Write([]byte) (int, error) {
	p.writes++
	return 0, errPulled
}

var errPulled = errors.New("pulled")

// A hub that closes a connection says why, and the write that fails then may come before the read.
func TestTheHubsReasonGoesBeforeAFailureToWrite(t *testing.T) {
	forced := wire.Errorf(wire.ConnectionForced, "too many messages")
	for name, test := range map[string]struct {
		says []byte
		want error
	}{
		"a reason":    {encode(t, 0, &wire.Close{Error: forced}, nil), ConditionOf("connection", forced)},
		"a violation": {encode(t, 7, &wire.End{}, nil), transport.ErrViolation},
		"nothing":     {nil, errPulled},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				line, far := pipe(t)
				broken := &pulled{Conn: line}
				c := newConn(broken, line, time.Hour)
				c.sessions.Store(1)
				c.start()
				began := time.Now()
				for range 3 {
					c.put([]byte("x"))
					c.Flush()
				}
				require.Equal(t, 1, broken.writes)
				require.False(t, c.Gone())
				require.Equal(t, Gone, (&Sender{link: link{s: &Session{c: c}}}).Send(0, nil, []byte("x")), "what is not sent")
				_, _ = far.Write(test.says)
				if reason, ok := errors.AsType[*ConditionError](test.want); ok {
					require.Equal(t, reason, c.Loss())
				} else {
					require.ErrorIs(t, c.Loss(), test.want)
				}
				require.LessOrEqual(t, time.Since(began), reasonTime)
				c.Close()
			})
		})
	}
	for why, peers := range map[error]bool{
		ErrHubClosed: false, ErrClosed: false, net.ErrClosed: false, io.ErrUnexpectedEOF: false,
		&silenceError{os.ErrDeadlineExceeded}:                      false,
		&net.OpError{Op: "read", Err: syscall.ECONNRESET}:          false,
		&net.OpError{Op: "remote error", Err: tls.AlertError(45)}:  true, // certificate expired
		&transport.Error{Kind: transport.Protocol, Err: errPulled}: true, // such as a text over WebSocket
		ConditionOf("connection", forced):                          true,
		&Violation{}:                                               true,
	} {
		require.Equal(t, peers, said(why), "%v", why)
	}
	for name, end := range map[string]func(c *Conn, far *memconn.Conn){
		"the network": func(_ *Conn, far *memconn.Conn) { _ = far.Close() },
		"this side":   func(c *Conn, _ *memconn.Conn) { c.Close() },
	} {
		t.Run("ended by "+name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				line, far := pipe(t)
				c := newConn(&pulled{Conn: line}, line, time.Hour)
				c.start()
				began := time.Now()
				c.put([]byte("x"))
				c.Flush()
				end(c, far)
				if name == "the network" {
					require.ErrorIs(t, c.Loss(), errPulled)
				}
				c.Close()
				require.Zero(t, time.Since(began))
			})
		})
	}
}

// alerting is a connection on which the peer sends an alert.
type alerting struct{ net.Conn }

func (alerting) Read([]byte) (int, error) {
	return 0, &net.OpError{Op: "remote error", Err: tls.AlertError(45)}
}

// In TLS 1.3 a hub refuses the certificate of a client after the client's side of the handshake.
func TestTheHubsAlertGoesBeforeAFailureToWriteTheHandshake(t *testing.T) {
	connect := func(t *testing.T, wrap func(net.Conn) net.Conn) error {
		line, far := pipe(t)
		_, _ = far.Write([]byte("AMQP"))
		_, err := Connect(t.Context(), wrap(&pulled{Conn: line}), line, &Options{Host: "hub"})
		return err
	}
	testkit.Bubble(t, func(t *testing.T) {
		_, alerted := errors.AsType[tls.AlertError](connect(t, func(c net.Conn) net.Conn { return alerting{c} }))
		require.True(t, alerted)
		began := time.Now()
		require.ErrorIs(t, connect(t, func(c net.Conn) net.Conn { return c }), errPulled)
		require.Equal(t, reasonTime, time.Since(began))
	})
}

// Full calls each waiter back when there is room, once for a message that was tried many times. A
// message of any size has room when nothing is pending.
func TestRoomIsReported(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, far := open(t)
		go func() { _, _ = io.Copy(io.Discard, far) }()
		var called [3]int
		var wake [3]func()
		for i := range wake {
			wake[i] = func() { called[i]++ }
		}
		require.False(t, c.Full(2*HighWater, &wake[2]))
		for n := 1; n <= 2; n++ { // each time anew
			c.put(make([]byte, HighWater))
			for range 100 {
				require.True(t, c.Full(1, &wake[0]))
				require.True(t, c.Full(1, &wake[1]))
			}
			c.Flush()
			synctest.Wait()
			require.Equal(t, [3]int{n, n, 0}, called)
		}
		require.Zero(t, c.Pending())
	})
}

// Bytes written before Close are sent.
func TestCloseSendsWhatIsPending(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, far := open(t)
		c.put([]byte("goodbye"))
		go c.Close()
		all, err := io.ReadAll(far)
		require.NoError(t, err)
		require.Equal(t, "goodbye", string(all[:7]))
		require.ErrorIs(t, c.Loss(), ErrClosed)
	})
}

// A frame that arrives slowly, and an empty one, reset the idle time-out.
func TestPartsOfAFrameResetTheIdleTimeout(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, far := open(t)
		began := time.Now()
		parts := []byte{0, 0, 0, 8, 2, 0, 0, 0, 0, 0}
		for i := range parts {
			time.Sleep(50 * time.Minute)
			_, _ = far.Write(parts[i : i+1])
		}
		require.ErrorIs(t, c.Loss(), os.ErrDeadlineExceeded)
		require.ErrorContains(t, c.Loss(), "the hub sent nothing in time")
		require.Equal(t, 560*time.Minute, time.Since(began))
	})
}

// Reading stops while the peer does not read the answers to its frames, so that answers do not fill
// the memory.
func TestReadingStopsWhileTooMuchIsPending(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, far := open(t)
		far.SetBuffer(1 << 10)
		c.put(make([]byte, 2000))
		c.Kick()
		synctest.Wait() // a write is stuck
		c.put(make([]byte, maxUnread))
		_, _ = far.Write([]byte{0, 0, 0, 8, 2, 0, 0, 0})
		synctest.Wait() // that was read before
		_, _ = far.Write([]byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x18, 0x45})
		began := time.Now()
		require.ErrorIs(t, c.Loss(), os.ErrDeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(began), "the time of a write")
	})
}

// The connection ends in the same way for any split into pieces.
func TestFramesArriveInAnyPieces(t *testing.T) {
	large := encode(t, 0, &wire.Close{Error: wire.Errorf("large", "%s", bytes.Repeat([]byte("x"), 40_000))}, nil)
	start := []byte{0, 0, 0, 12, 3, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 8, 2, 0, 0, 0}
	for name, all := range map[string][]byte{
		"closed": append(bytes.Clone(start), large...),
		"broken": append(bytes.Clone(start), 0, 0, 0, 9, 2, 0, 0, 0, 0x40),
		"cut":    start[:15],
		"junk":   append(bytes.Clone(start), "HTTP/1.1 400 Bad Request"...),
	} {
		for _, step := range []int{1, 3, 7, 100, 4096, len(all)} {
			testkit.Bubble(t, func(t *testing.T) {
				c, far := open(t)
				for rest := all; len(rest) > 0; {
					n := min(step, len(rest))
					_, _ = far.Write(rest[:n])
					rest = rest[n:]
					synctest.Wait()
				}
				_ = far.CloseWrite()
				err := c.Loss()
				_, bad := errors.AsType[*Violation](err)
				require.Equal(t, name == "broken" || name == "junk", bad, "%v", err)
				_, said := errors.AsType[*ConditionError](err)
				require.Equal(t, name == "closed", said, "%v", err)
				require.Equal(t, name == "cut", errors.Is(err, ErrHubClosed), "%v", err)
			})
		}
	}
}
