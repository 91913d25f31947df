package amqpclient

import (
	"context"
	"encoding/binary"
	"errors"
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

// rig is a connection with a session on channel 0, on which this side sends over one link
// (handles 0 and 10), and receives over another one (handles 1 and 11), for five messages. Its
// peer answers what the set-up asks, records all frames, and says what a test wants.
type rig struct {
	t    testing.TB
	c    *Conn
	far  *memconn.Conn
	s    *Session
	out  *Sender
	in   *Receiver
	open *wire.Open // of the peer

	refuse bool // the peer refuses links
	seen   []wire.Performative
	bytes  int // of payloads
	got    []Incoming
	lost   []error
	states []wire.DeliveryState
	credit int // calls of Credited
}

// Settled records an outcome.
func (r *rig) Settled(state wire.DeliveryState) { r.states = append(r.states, state) }

// rigged runs f with fake time.
func rigged(t *testing.T, f func(r *rig)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		r := connected(t, nil)
		var err error
		r.s, err = r.c.Begin(t.Context())
		require.NoError(t, err)
		detached := func(err error) { r.lost = append(r.lost, err) }
		r.out, err = r.s.NewSender(t.Context(), &SenderOptions{Credited: func() { r.credit++ },
			LinkOptions: LinkOptions{Name: "out", Detached: detached}})
		require.NoError(t, err)
		r.in, err = r.s.NewReceiver(t.Context(), &ReceiverOptions{Credit: 5, MaxMessageSize: 400_000,
			Message:     func(_ *Receiver, m Incoming) { r.got = append(r.got, m) },
			LinkOptions: LinkOptions{Name: "in", Detached: detached}})
		require.NoError(t, err)
		synctest.Wait()
		r.seen = nil
		f(r)
	})
}

// connected returns a rig with an open connection.
func connected(t testing.TB, open *wire.Open) *rig {
	t.Helper()
	near, far := memconn.Pair("near", "far")
	r := &rig{t: t, far: far, open: open}
	if open == nil {
		r.open = &wire.Open{ContainerID: "hub", MaxFrameSize: MaxFrame, ChannelMax: 9}
	}
	go r.peer()
	line := dialer.NewProgressConn(near, 10*time.Second)
	var err error
	r.c, err = Connect(t.Context(), line, line, &Options{Host: "hub"})
	require.NoError(t, err)
	t.Cleanup(func() {
		r.c.Close()
		_ = far.Close()
	})
	return r
}

// peer answers.
func (r *rig) peer() {
	var in []byte
	part := make([]byte, 1<<16)
	for {
		n, err := r.far.Read(part)
		if err != nil {
			return
		}
		in = append(in, part[:n]...)
		for len(in) >= wire.HeaderSize {
			if string(in[:4]) == "AMQP" {
				_, _ = r.far.Write(in[:wire.HeaderSize])
				in = in[wire.HeaderSize:]
				continue
			}
			f, n, err := wire.Split(in, 2<<20)
			if err != nil || n == 0 {
				break
			}
			in = in[n:]
			if len(f.Body) == 0 {
				continue
			}
			p, payload, err := f.Performative()
			if err != nil {
				return
			}
			r.seen = append(r.seen, p)
			r.bytes += len(payload)
			r.answer(f.Channel, p)
		}
	}
}

func (r *rig) answer(channel uint16, p wire.Performative) {
	switch p := p.(type) {
	case *wire.Open:
		r.say(0, r.open)
	case *wire.Begin:
		r.say(channel+1, &wire.Begin{RemoteChannel: wire.Some(channel), IncomingWindow: 5000, OutgoingWindow: 5000})
	case *wire.Attach:
		a := &wire.Attach{Name: p.Name, Handle: p.Handle + 10, Role: !p.Role, Source: &wire.Source{}, Target: &wire.Target{}}
		if r.refuse {
			a.Source, a.Target = nil, nil
		}
		r.say(channel+1, a)
	}
}

func encode(t testing.TB, channel uint16, p wire.Performative, payload []byte) []byte {
	b, err := wire.AppendFrame(nil, channel, p, payload)
	require.NoError(t, err)
	return b
}

// say sends a frame of the peer.
func (r *rig) say(channel uint16, p wire.Performative) { r.write(encode(r.t, channel, p, nil)) }

// tell sends a frame of the peer and waits for its effect, which is not the end of the connection.
func (r *rig) tell(p wire.Performative, payload ...byte) {
	r.t.Helper()
	r.write(encode(r.t, 1, p, payload))
	synctest.Wait()
	if r.c.Gone() {
		require.NoError(r.t, r.c.Loss())
	}
}

func (r *rig) write(b []byte) { _, _ = r.far.Write(b) }

// refuses requires that a frame ends the connection with a reason.
func (r *rig) refuses(b []byte, reason string) {
	r.t.Helper()
	r.write(b)
	synctest.Wait()
	require.True(r.t, r.c.Gone(), "%s", reason)
	bad, ok := errors.AsType[*Violation](r.c.Loss())
	require.True(r.t, ok, "%v", r.c.Loss())
	require.ErrorContains(r.t, bad, reason)
	require.ErrorIs(r.t, bad, transport.ErrViolation)
}

// grant gives credit for messages of this side.
func (r *rig) grant(count, credit uint32) {
	r.t.Helper()
	r.tell(&wire.Flow{NextIncomingID: wire.Some(count), IncomingWindow: 5000, Handle: wire.Some(uint32(10)),
		DeliveryCount: wire.Some(count), LinkCredit: wire.Some(credit)})
}

// send sends n messages, and requires that they are not blocked.
func (r *rig) send(n int) {
	r.t.Helper()
	for range n {
		require.Equal(r.t, NotBlocked, r.out.Send(0, r, []byte("x")))
	}
	r.c.Flush()
	synctest.Wait()
}

// delivery returns the first transfer of a message.
func delivery(id uint32, more bool) *wire.Transfer {
	return &wire.Transfer{Handle: 11, DeliveryID: wire.Some(id), DeliveryTag: []byte{1},
		MessageFormat: wire.Some(uint32(0)), More: more}
}

// raw returns a frame on channel 1 with the given fields.
func raw(t testing.TB, code uint64, fields ...any) []byte {
	body, err := wire.Append(nil, &wire.Described{Descriptor: code, Value: wire.List(fields)})
	require.NoError(t, err)
	return framed(body)
}

func framed(body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	return append(append(b, 2, 0, 0, 1), body...)
}

var gone = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
