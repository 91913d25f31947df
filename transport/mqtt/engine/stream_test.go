package engine

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// pieces is a Conn that reads a stream in pieces of size bytes.
type pieces struct {
	stream []byte
	size   int
}

func (p *pieces) Read(b []byte) (int, error) {
	n := copy(b, p.stream[:min(p.size, len(p.stream))])
	p.stream = p.stream[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (p *pieces) Write(b []byte) (int, error)     { return len(b), nil }
func (p *pieces) SetReadDeadline(time.Time) error { return nil }
func (p *pieces) Close() error                    { return nil }

// play feeds a stream to a session, and returns its sink and why it ended.
func play(t testing.TB, stream []byte, size int, o *Options) (*sink, string) {
	k := new(sink)
	s := newSession(New(func(context.Context, *transport.Credentials) (Conn, error) {
		return nil, errPulled
	}, o), &transport.Config{Sink: k}, transport.Token{}, hubSession(t), &pieces{stream, size})
	s.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
	err := s.Run(context.Background())
	return k, err.Error()
}

// No stream makes the reader panic. The split into pieces makes no difference, nor do fixed buffers
// as long as each packet fits.
func FuzzStream(f *testing.F) {
	mine := "devices/dev-1/messages/devicebound/"
	f.Add([]byte{0x40, 2, 0, 1, 0x90, 3, 0xf0, 1, 1, 0xD0, 0}, 3)
	f.Add(append(publishBytes(mine+"a=b&%24.mid=x", 7, "hello"), 0x40, 2, 0, 9), 1)
	f.Add(publishBytes(mine+"%24.exp=2030-01-01T00%3A00%3A00Z", 0, strings.Repeat("x", 300)), 255)
	f.Add([]byte{0x30, 0xff, 0xff, 0xff, 0x7f, 0}, 2)
	f.Add([]byte{0x30, 0x80, 0x80, 0x80, 0x80}, 4)
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		if size < 1 || len(stream) > 4096 {
			return
		}
		whole, why := play(t, stream, 1<<20, nil)
		cut, whyCut := play(t, stream, size, nil)
		require.Equal(t, why, whyCut)
		require.Equal(t, whole.Results, cut.Results)
		require.Equal(t, whole.Messages, cut.Messages)
		require.Equal(t, whole.Refs, cut.Refs)
		require.Equal(t, len(whole.Replies), len(cut.Replies))
		board, _ := play(t, stream, size, &Options{ReadBuffer: 4096 + 64, WriteBuffer: 512})
		require.Equal(t, whole.Results, board.Results)
		require.Equal(t, whole.Messages, board.Messages)
		_, _ = play(t, stream, size, &Options{ReadBuffer: 64, WriteBuffer: 512})
	})
}

// echo answers each whole PUBLISH with its PUBACK, without allocating. It is the network and the
// hub in one.
type echo struct {
	acks chan []byte // capacity 1 each; two buffers alternate
	free chan []byte
	rest []byte
	kept []byte
	end  chan struct{}

	skip    int // bytes left of a packet
	publish bool
	id      [2]byte
}

func newEcho() *echo {
	e := &echo{acks: make(chan []byte, 2), free: make(chan []byte, 2), end: make(chan struct{})}
	e.free <- make([]byte, 0, 4096)
	e.free <- make([]byte, 0, 4096)
	e.rest = []byte{0x20, 2, 0, 0}
	return e
}

func (e *echo) Write(p []byte) (int, error) {
	select {
	case out := <-e.free:
		for b := p; len(b) > 0; {
			if e.skip == 0 { // heads arrive whole
				length, n := binary.Uvarint(b[1:])
				e.skip = 1 + n + int(length)
				if e.publish = b[0]>>4 == 3; e.publish {
					topic := int(binary.BigEndian.Uint16(b[1+n:]))
					copy(e.id[:], b[1+n+2+topic:])
				}
			}
			n := min(e.skip, len(b))
			b = b[n:]
			if e.skip -= n; e.skip == 0 && e.publish {
				out = append(out, 0x40, 2, e.id[0], e.id[1])
			}
		}
		if len(out) == 0 {
			e.free <- out
			return len(p), nil
		}
		e.acks <- out
		return len(p), nil
	case <-e.end:
		return 0, net.ErrClosed
	}
}

func (e *echo) Read(p []byte) (int, error) {
	if len(e.rest) == 0 {
		if e.kept != nil {
			e.free <- e.kept[:0]
			e.kept = nil
		}
		select {
		case e.kept = <-e.acks:
			e.rest = e.kept
		case <-e.end:
			return 0, net.ErrClosed
		}
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

func (e *echo) SetReadDeadline(time.Time) error { return nil }
func (e *echo) Close() error                    { close(e.end); return nil }

// nowhere is a sink that only reports results.
type nowhere struct{ done chan uint16 }

func (n nowhere) Done(tag uint16, err error)     { n.done <- tag }
func (nowhere) Reply(uint32, transport.Reply)    {}
func (nowhere) Deliver(*transport.Delivery) bool { return true }

func TestASessionAllocatesNothingPerMessage(t *testing.T) {
	for _, o := range []*Options{nil, {ReadBuffer: 512, WriteBuffer: 1024}} {
		k := nowhere{make(chan uint16, 64)}
		ctx, cancel := context.WithCancel(context.Background())
		tr := New(func(context.Context, *transport.Credentials) (Conn, error) { return newEcho(), nil }, o)
		s, err := tr.Dial(ctx, &transport.Config{Creds: testCreds(t), Window: 64, Sink: k})
		require.NoError(t, err)
		ran := make(chan error)
		go func() { ran <- s.Run(ctx) }()
		batch := make([]transport.Item, 8)
		m := &transport.Message{ID: "m-1", ContentType: "text/plain", Created: time.Unix(1, 0),
			Properties: []transport.Property{{Name: "a b", Value: "c/d"}}, Body: make([]byte, 60)}
		ping := &transport.Request{Op: transport.OpPing}
		settle := &transport.Request{Op: transport.OpSettle, Ref: []byte{1, 2}}
		cycle := func() {
			for i := range batch {
				batch[i] = transport.Item{Tag: uint16(i), Msg: m}
			}
			s.Send(batch)
			s.Do(ping)
			s.Do(settle)
			for range batch {
				<-k.done
			}
		}
		for range 10 {
			cycle() // the buffers grow
		}
		require.Zero(t, testing.AllocsPerRun(200, cycle))
		cancel()
		<-ran
	}
}

// From Enqueue to acknowledgement, through the whole client.
func TestAClientAllocatesNothingPerMessage(t *testing.T) {
	dial := func(context.Context, *transport.Credentials) (Conn, error) { return newEcho(), nil }
	c, err := device.New(testCreds(t), New(dial, nil), nil)
	require.NoError(t, err)
	require.NoError(t, c.Open(t.Context()))
	m := &transport.Message{ID: "m-1", Body: make([]byte, 100)}
	ctx := t.Context()
	receipts := make([]device.Receipt, 32)
	cycle := func() {
		for i := range receipts {
			if err := c.Enqueue(ctx, m, &receipts[i]); err != nil {
				t.Error(err)
			}
		}
		for i := range receipts {
			if err := receipts[i].Wait(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	for range 20 {
		cycle()
	}
	require.Zero(t, testing.AllocsPerRun(200, cycle))
	require.NoError(t, c.Close())
}
