package lean

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// reuser is a sink whose owner takes a refused message back and makes it smaller.
type reuser struct {
	*sink
	m *transport.Message
}

func (s *reuser) Done(tag uint16, err error) {
	if err != nil {
		s.m.Body = []byte("another one") // ours again
	}
	s.sink.Done(tag, err)
}

// With QoS 0 a message that was refused is not looked at again, and has one result.
func TestAtMostOnceHasOneResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, New(h.dial, &Options{AtMostOnce: true}))
		m := &transport.Message{Body: make([]byte, transport.MaxMessageSize+1)}
		r.session.sink = &reuser{r.sink, m}
		r.Send([]transport.Item{{Tag: 7, Msg: m}, {Tag: 8, Msg: &transport.Message{Body: []byte("b")}}})
		l.expect(0x30)
		require.Len(t, r.sink.done, 2, "%v", r.sink.done)
	})
}

// slow takes 2 KB a second.
type slow struct{ Conn }

func (c slow) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Second / 2000)
	return c.Conn.Write(p)
}

func TestASlowLinkIsNoDeadOne(t *testing.T) {
	for _, size := range []int{0, 1024} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			h.wrap = func(c Conn) Conn { return slow{c} }
			r, l := start(t, h, New(h.dial, &Options{WriteBuffer: size}))
			go func() { _, _ = l.drain() }()
			began := time.Now()
			r.Send([]transport.Item{{Tag: 0, Msg: &transport.Message{Body: make([]byte, 250_000)}}})
			synctest.Wait()
			select {
			case err := <-r.ran:
				t.Errorf("WriteBuffer %d: died after %v though the link got on: %v", size, time.Since(began), err)
			default:
			}
		})
	}
}
