package amqp_test

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// breaker is a connection that replaces transfers to the device whose message contains one of its
// words, as a faulty hub would send them. A word has a letter above f, since lock tokens are
// hexadecimal.
type breaker struct {
	net.Conn
	faults  map[string]spoiler
	ends    *atomic.Int32 // of sessions, from the device
	in, out []byte

	mu    sync.Mutex
	added map[uint16]uint32 // transfers that the hub does not count, by channel
}

// spoiler returns the payloads of the transfers that replace a transfer.
type spoiler func(payload []byte) [][]byte

// withoutSections makes the data section something else.
func withoutSections(payload []byte) [][]byte {
	payload = slices.Clone(payload)
	payload[bytes.Index(payload, dataSection)+2] = 0x7f
	return [][]byte{payload}
}

// addBytes adds n bytes in data sections, each in a transfer of its own.
func addBytes(n int) spoiler {
	return func(payload []byte) [][]byte {
		all := [][]byte{payload}
		for left := n; left > 0; left -= 60_000 {
			const length = 60_000
			all = append(all, append([]byte{0, 0x53, 0x75, 0xb0, 0, 0, length >> 8, length & 0xff}, make([]byte, length)...))
		}
		return all
	}
}

// hubMaxMessage is the max-message-size of the links to a hub.
const hubMaxMessage = 1 << 20

var dataSection = []byte{0, 0x53, 0x75}

// Write corrects the device's count of transfers for the hub.
func (c *breaker) Write(b []byte) (int, error) {
	var out []byte
	for rest := b; len(rest) > 0; {
		f, n, err := wire.Split(rest, 1<<20)
		if err != nil || n == 0 {
			out = append(out, rest...)
			break
		}
		frame := rest[:n]
		rest = rest[n:]
		p, _, _ := f.Performative()
		switch p := p.(type) {
		case *wire.End:
			c.ends.Add(1)
		case *wire.Flow:
			c.mu.Lock()
			p.NextIncomingID.V -= c.added[f.Channel]
			c.mu.Unlock()
			if frame, err = wire.AppendFrame(nil, f.Channel, p, nil); err != nil {
				return 0, err
			}
		}
		out = append(out, frame...)
	}
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
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
	if c.out = c.out[n:]; len(c.out) == 0 {
		c.out = nil
	}
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
		if t, ok := p.(*wire.Transfer); ok {
			for word, spoil := range c.faults {
				if bytes.Contains(payload, []byte(word)) {
					payloads := spoil(payload)
					whole = transfers(f.Channel, t, payloads)
					c.mu.Lock()
					c.added[f.Channel] += uint32(len(payloads) - 1)
					c.mu.Unlock()
				}
			}
		}
	}
	c.out = append(c.out, whole...)
	return true
}

// transfers returns frames that have the fields of t and these payloads.
func transfers(channel uint16, t *wire.Transfer, payloads [][]byte) (frames []byte) {
	more := t.More
	for i, payload := range payloads {
		part := &wire.Transfer{Handle: t.Handle}
		if i == 0 {
			part = t
		}
		part.More = more || i < len(payloads)-1
		var err error
		if frames, err = wire.AppendFrame(frames, channel, part, payload); err != nil {
			panic(err)
		}
	}
	return frames
}

// breaking returns options whose connections break messages.
func (h *hub) breaking() *amqp.Options {
	return h.faulty(new(atomic.Int32), map[string]spoiler{
		"wrong": withoutSections, "huge": addBytes(17 << 20), "large": addBytes(hubMaxMessage),
	})
}

// faulty returns options whose connections replace messages that contain one of the words, and
// count the ends of sessions.
func (h *hub) faulty(ends *atomic.Int32, faults map[string]spoiler) *amqp.Options {
	o := h.options()
	dial := o.Network.Dial
	o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &breaker{Conn: c, ends: ends, faults: faults, added: map[uint16]uint32{}}, err
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
			body := []byte("wrong")
			if i%10 == 9 {
				body = append(body, make([]byte, 65_000)...)
			}
			require.NoError(t, h.SendC2D("mine", hubdata.C2D{Body: body, MessageID: strings.Repeat("i", 100)}))
			require.NoError(t, h.WaitC2D(t.Context(), "mine", hubdata.C2DRejected, i+1))
		}
		for _, id := range []string{"mine", "other"} {
			require.NoError(t, h.SendC2D(id, hubdata.C2D{Body: []byte("good")}))
		}
		time.Sleep(time.Second)
		for _, r := range []*running{mine, other} {
			require.Equal(t, []string{"good"}, r.sink.Bodies())
			r.requireSends("y")
			r.requireAlive()
		}
		require.EqualValues(t, 1, h.dials.Load())
	})
}

// A cloud-to-device message whose body is not bytes and cannot become text is rejected, rather than
// handled as an empty one. Simple values become text.
func TestABodyWithoutBytesIsRejected(t *testing.T) {
	replace := func(m wire.Message) spoiler {
		payload, err := wire.AppendMessage(nil, &m)
		require.NoError(t, err)
		return func([]byte) [][]byte { return [][]byte{payload} }
	}
	bubble(t, func(t *testing.T, h *hub) {
		r := start(t, amqp.New(h.faulty(new(atomic.Int32), map[string]spoiler{
			"map":     replace(wire.Message{Value: wire.Map{{Key: "k", Value: "v"}}, HasValue: true}),
			"tuple":   replace(wire.Message{Value: wire.List{"v"}, HasValue: true}),
			"lists":   replace(wire.Message{Sequence: []wire.List{{"v"}}}),
			"seven":   replace(wire.Message{Value: int32(7), HasValue: true}),
			"nothing": replace(wire.Message{HasValue: true}),
		})), h.device(t, "d"))
		r.subscribe(1)
		for i, body := range []string{"map", "tuple", "lists"} {
			require.NoError(t, h.SendC2D("d", hubdata.C2D{Body: []byte(body)}))
			time.Sleep(time.Second)
			require.Equal(t, i+1, h.CountC2D("d", hubdata.C2DRejected), body)
		}
		require.Empty(t, r.sink.Bodies())
		for _, body := range []string{"seven", "nothing"} {
			require.NoError(t, h.SendC2D("d", hubdata.C2D{Body: []byte(body)}))
			time.Sleep(time.Second)
		}
		require.Equal(t, []string{"7", ""}, r.sink.Bodies())
	})
}

// A cloud-to-device message that is too large is rejected, so that the hub does not deliver it
// again. The connection stays, for all devices of the Mux.
func TestAMessageThatIsTooLargeIsRejected(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		mux := amqp.NewMux(h.breaking())
		mine, other := start(t, mux, h.device(t, "mine")), start(t, mux, h.device(t, "other"))
		for _, r := range []*running{mine, other} {
			r.subscribe(1)
			r.requireSends("x")
		}
		const n = 20 // the link has credit for 8
		for i := range n {
			body := "large"
			if i%10 == 9 {
				body = "huge"
			}
			require.NoError(t, h.SendC2D("mine", hubdata.C2D{Body: []byte(body)}))
			require.NoError(t, h.WaitC2D(t.Context(), "mine", hubdata.C2DRejected, i+1))
		}
		for _, id := range []string{"mine", "other"} {
			require.NoError(t, h.SendC2D(id, hubdata.C2D{Body: []byte("good")}))
		}
		time.Sleep(time.Second)
		for _, r := range []*running{mine, other} {
			require.Equal(t, []string{"good"}, r.sink.Bodies())
			r.requireSends("y")
			r.requireAlive()
		}
		require.EqualValues(t, 1, h.dials.Load())
	})
}

// A large message arrives whole, in many transfers. Settling it returns the credit of the link.
func TestALargeMessageIsDelivered(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		const size = 15*60_000 + len("whole")
		r := start(t, amqp.New(h.faulty(new(atomic.Int32), map[string]spoiler{"whole": addBytes(15 * 60_000)})),
			h.device(t, "d"))
		r.subscribe(1)
		const n = 20 // the link has credit for 8
		for i := range n {
			require.NoError(t, h.SendC2D("d", hubdata.C2D{Body: []byte("whole")}))
			time.Sleep(time.Second)
			require.Len(t, r.sink.Bodies(), i+1)
			require.Len(t, r.sink.Bodies()[i], size)
			r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Ref(i), Outcome: transport.OutcomeAccept})
			require.NoError(t, h.WaitC2D(t.Context(), "d", hubdata.C2DCompleted, i+1))
		}
	})
}

// A broken answer to a token ends the session of the tokens, and the next token gets a new one.
func TestABrokenTokenAnswerEndsItsSession(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		ends := new(atomic.Int32)
		var broken atomic.Bool
		mux := amqp.NewMux(h.faulty(ends, map[string]spoiler{"status-code": func(payload []byte) [][]byte {
			if !broken.Load() {
				return [][]byte{payload}
			}
			payload = slices.Clone(payload)
			payload[2] = 0x7f
			return [][]byte{payload}
		}}))
		mine := start(t, mux, h.device(t, "mine"))
		mine.requireSends("x")
		broken.Store(true)
		_, err := tryStart(t, mux, h.device(t, "other"))
		require.ErrorIs(t, err, transport.Protocol)
		require.ErrorContains(t, err, "message: section 127 of a message")
		broken.Store(false)
		time.Sleep(time.Second)
		require.EqualValues(t, 1, ends.Load(), "ends of sessions")
		start(t, mux, h.device(t, "third")).requireSends("y")
		mine.requireSends("z")
		require.EqualValues(t, 1, ends.Load(), "ends of sessions")
		require.EqualValues(t, 1, h.dials.Load())
	})
}

// Links on which no answer comes are given up: the hub may have lost its ends of them. The next
// token gets new ones.
func TestLinksThatAnswerNoTokenAreGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		ends := new(atomic.Int32)
		mux := amqp.NewMux(h.faulty(ends, nil))
		mine := start(t, mux, h.device(t, "mine"))
		h.inject(fault.Fault{Kind: fault.SwallowToken})
		_, err := tryStart(t, mux, h.device(t, "other"))
		require.ErrorIs(t, err, transport.Timeout)
		time.Sleep(time.Second)
		require.EqualValues(t, 1, ends.Load(), "ends of sessions")
		start(t, mux, h.device(t, "third")).requireSends("y")
		mine.requireSends("z")
		require.EqualValues(t, 1, h.dials.Load())
	})
}

// An answer to a token without a status refuses nothing, so the dial may be tried again.
func TestATokenAnswerWithoutAStatus(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		for what, change := range map[string]func([]byte){
			"name": func(payload []byte) { payload[bytes.Index(payload, []byte("status-code"))] = 'S' },
			"zero": func(payload []byte) {
				at := bytes.Index(payload, []byte("status-code")) + len("status-code")
				copy(payload[at:], []byte{0x71, 0, 0, 0, 0})
			},
		} {
			o := h.faulty(new(atomic.Int32), map[string]spoiler{"status-code": func(payload []byte) [][]byte {
				payload = slices.Clone(payload)
				change(payload)
				return [][]byte{payload}
			}})
			_, err := tryStart(t, amqp.New(o), h.device(t, what))
			require.ErrorIs(t, err, transport.Protocol)
			require.True(t, errfilter.Retryable(err), "%v", err)
			require.ErrorContains(t, err, "no status-code")
			require.NotContains(t, err.Error(), "refused")
		}
	})
}

// A broken answer about the twin ends the session of its device only.
func TestABrokenTwinEndsOneSession(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		mux := amqp.NewMux(h.breaking())
		mine, other := start(t, mux, h.device(t, "mine")), start(t, mux, h.device(t, "other"))
		other.requireSends("x")
		_, err := h.SetDesired("mine", `{"wrong":1}`)
		require.NoError(t, err)
		mine.Do(&transport.Request{ID: 5, Op: transport.OpTwinGet})
		e := mine.requireEnd(transport.Protocol)
		require.ErrorContains(t, e, "message: section 127 of a message")
		require.ErrorIs(t, e, transport.ErrViolation)
		other.requireSends("y")
		other.requireAlive()
		require.EqualValues(t, 1, h.dials.Load())
	})
}

// A delay that no clock can hold is none.
func TestAnAbsurdRetryAfterOfTheTwinIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := start(t, amqp.New(h.faulty(new(atomic.Int32), map[string]spoiler{"retry-after": func(p []byte) [][]byte {
			m, err := wire.DecodeMessage(p)
			require.NoError(t, err)
			for i := range m.MessageAnnotations {
				if m.MessageAnnotations[i].Key == wire.Symbol("retry-after") {
					m.MessageAnnotations[i].Value = int64(10_000_000_000)
				}
			}
			p, err = wire.AppendMessage(nil, m)
			require.NoError(t, err)
			return [][]byte{p}
		}})), h.device(t, "d"))
		h.inject(fault.Fault{Kind: fault.RefuseTwin, RetryAfter: 7 * time.Second})
		e := transport.Find(r.ask(&transport.Request{ID: 16, Op: transport.OpTwinGet}).Err)
		require.Equal(t, transport.Throttled, e.Kind)
		require.Zero(t, e.RetryAfter)
	})
}
