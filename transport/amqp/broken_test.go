package amqp_test

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// breaker is a connection that replaces each message to the device that begins with "bad" by one
// without message sections, as a faulty hub would send it.
type breaker struct {
	net.Conn
	in, out []byte
}

func (c *breaker) Read(b []byte) (int, error) {
	for len(c.out) == 0 {
		part := make([]byte, 4096)
		n, err := c.Conn.Read(part)
		if err != nil {
			return 0, err
		}
		c.in = append(c.in, part[:n]...)
		for c.next() {
		}
	}
	n := copy(b, c.out)
	c.out = c.out[n:]
	return n, nil
}

// next handles the next frame or protocol header, if it is whole.
func (c *breaker) next() bool {
	if bytes.HasPrefix(c.in, []byte("AMQP")) && len(c.in) >= wire.HeaderSize {
		c.out, c.in = append(c.out, c.in[:wire.HeaderSize]...), c.in[wire.HeaderSize:]
		return true
	}
	f, n, err := wire.Split(c.in, 1<<20)
	if err != nil || n == 0 {
		return false
	}
	whole := slices.Clone(c.in[:n])
	c.in = c.in[n:]
	if p, payload, err := f.Performative(); err == nil {
		if _, ok := p.(*wire.Transfer); ok && bytes.Contains(payload, []byte("bad")) {
			payload = whole[len(whole)-len(payload):]
			at := bytes.Index(payload, []byte{0, 0x53, 0x75}) // the data section
			payload[at+2] = 0x7f
		}
	}
	c.out = append(c.out, whole...)
	return true
}

// breaking returns options whose connections break messages.
func (h *hub) breaking() *amqp.Options {
	o := h.options()
	dial := o.Network.Dial
	o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &breaker{Conn: c}, err
	}
	return o
}

// A cloud-to-device message with broken sections is rejected, in one transfer or several. The
// credit of the link is returned, the link stays, and the other devices of the Mux are not
// affected.
func TestABrokenMessageIsRejected(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		mux := amqp.NewMux(h.breaking())
		mine, other := start(t, mux, h.device(t, "mine")), start(t, mux, h.device(t, "other"))
		for _, r := range []*running{mine, other} {
			r.subscribe(1)
			r.requireSends("x")
		}
		const n = 30 // the link has credit for 8
		for i := range n {
			body := []byte("bad")
			if i%10 == 9 {
				body = append(body, make([]byte, 65_000)...)
			}
			require.NoError(t, h.SendC2D("mine", testbroker.C2D{Body: body, MessageID: strings.Repeat("i", 100)}))
			require.NoError(t, h.WaitC2D(t.Context(), "mine", testbroker.Rejected, i+1))
		}
		for _, id := range []string{"mine", "other"} {
			require.NoError(t, h.SendC2D(id, testbroker.C2D{Body: []byte("good")}))
		}
		time.Sleep(time.Second)
		for _, r := range []*running{mine, other} {
			require.Equal(t, []string{"good"}, r.sink.bodies())
			r.requireSends("y")
			r.requireAlive()
		}
		require.EqualValues(t, 1, h.dials.Load())
	})
}

// A broken answer about the twin ends the session of its device only.
func TestABrokenTwinEndsOneSession(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		mux := amqp.NewMux(h.breaking())
		mine, other := start(t, mux, h.device(t, "mine")), start(t, mux, h.device(t, "other"))
		other.requireSends("x")
		_, err := h.SetDesired("mine", `{"bad":1}`)
		require.NoError(t, err)
		mine.Do(&transport.Request{ID: 5, Op: transport.OpTwinGet})
		e := mine.requireEnd(transport.Protocol)
		require.ErrorContains(t, e, "message has something that is not a section")
		require.ErrorIs(t, e, transport.ErrViolation)
		other.requireSends("y")
		other.requireAlive()
		require.EqualValues(t, 1, h.dials.Load())
	})
}
