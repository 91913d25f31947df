package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

// reuser is a sink that makes a refused message smaller.
type reuser struct {
	*sink
	m *transport.Message
}

func (s *reuser) Done(tag uint16, err error) {
	if err != nil {
		s.m.Body = []byte("another one") // the caller owns it again
	}
	s.sink.Done(tag, err)
}

// With QoS 0 a refused message is not accessed again, and has one result.
func TestAtMostOnceHasOneResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, New(h.dial, &Options{AtMostOnce: true}))
		m := &transport.Message{Body: make([]byte, transport.MaxMessageSize+1)}
		r.session.sink = &reuser{r.sink, m}
		r.Send([]transport.Item{{Tag: 7, Msg: m}, {Tag: 8, Msg: &transport.Message{Body: []byte("b")}}})
		l.Expect(0x30)
		require.Len(t, r.sink.Results, 2, "%v", r.sink.Results)
	})
}

// slow transfers 2 KB a second.
type slow struct{ Conn }

func (c slow) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Second / 2000)
	return c.Conn.Write(p)
}

func TestASlowLinkIsNotDead(t *testing.T) {
	for _, size := range []int{0, 1024} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			h.wrap = func(c Conn) Conn { return slow{c} }
			r, l := start(t, h, New(h.dial, &Options{WriteBuffer: size}))
			go func() { _, _ = l.Drain() }()
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

// Answers over MQTT 5 are written beside the caller of Send and Do.
func TestProgressMayBeAskedWhileAnswersAreWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		h.wrap = func(c Conn) Conn { return slow{c} }
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		for id := range uint16(2000) {
			l.Send(publish5(0x32, "no/subscription", id+1, "", "")...)
		}
		began := time.Now()
		for at, _ := r.Progress(); !at.After(began); at, _ = r.Progress() {
			time.Sleep(time.Second)
		}
	})
}

func TestTheBytesInFlightAreBounded(t *testing.T) {
	s := newSession(New(nil, nil), &transport.Config{}, transport.Token{}, hubSession(t), nil)
	for tag := range uint16(3) {
		s.wrote(tag, transport.MaxMessageSize)
	}
	require.Equal(t, transport.MaxMessageSize, s.unackedBytes, "an int has 32 bits on a board")
}

// breaking fails the fourth write.
type breaking struct {
	Conn
	writes *int
}

func (c breaking) Write(p []byte) (int, error) {
	if *c.writes++; *c.writes == 4 {
		return 0, errors.New("gone")
	}
	return c.Conn.Write(p)
}

// With QoS 0 messages that were written are done, though a later write of the batch fails: they are
// not sent again.
func TestAtMostOnceOfABatchThatBreaks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		writes := 0
		h.wrap = func(c Conn) Conn { return breaking{c, &writes} }
		r, l := start(t, h, New(h.dial, &Options{AtMostOnce: true}))
		var batch []transport.Item
		for i := range 64 {
			batch = append(batch, transport.Item{Tag: uint16(i), Msg: &transport.Message{Body: make([]byte, 1000)}})
		}
		arrived := make(chan int)
		go func() { all, _ := l.Drain(); arrived <- len(all) }()
		r.Send(batch)
		n := <-arrived
		require.Greater(t, n, 15)
		require.Len(t, r.sink.Results, n)
	})
}

// A packet received shortly before a ping does not shorten the time for the ping's answer.
func TestAPingHasATimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, New(h.dial, &Options{KeepAlive: 10 * time.Second, PingTimeout: time.Second}))
		go func() { _, _ = l.Drain() }()
		time.Sleep(9050 * time.Millisecond)
		l.Puback(60000)
		time.Sleep(950 * time.Millisecond)
		for _, late := range []time.Duration{40 * time.Millisecond, 800 * time.Millisecond} {
			r.Do(&transport.Request{Op: transport.OpPing})
			time.Sleep(late)
			l.Send(0xd0, 0)
			time.Sleep(10*time.Second - late)
		}
		require.Empty(t, r.ran)
	})
}

// uplink takes 10 ms for each write.
type uplink struct{ Conn }

func (c uplink) Write(p []byte) (int, error) {
	time.Sleep(10 * time.Millisecond)
	return c.Conn.Write(p)
}

// With QoS 0 and a client that always sends, the answers to pings are all that arrives.
func TestPingsGoOutHoweverBusyTheClientIs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		h.wrap = func(c Conn) Conn { return uplink{c} }
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				conn, err := h.net.Accept()
				if err != nil {
					return
				}
				go answer(testkit.NewMQTTLink(t, conn))
			}
		}()
		c, err := device.New(testCreds(t), New(h.dial, &Options{AtMostOnce: true}), nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		m := &transport.Message{Body: make([]byte, 10_000)}
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); {
			require.NoError(t, c.Enqueue(t.Context(), m, nil))
		}
		require.EqualValues(t, 1, c.Stats().Connections)
		require.NoError(t, c.Close())
		_ = h.net.Close()
		<-ended
	})
}

// answer answers CONNECT and pings.
func answer(l *link) {
	for {
		p, err := l.Next()
		if err != nil {
			return
		}
		switch p.First & 0xf0 {
		case 0x10:
			l.Send(0x20, 2, 0, 0)
		case 0xc0:
			l.Send(0xd0, 0)
		}
	}
}
