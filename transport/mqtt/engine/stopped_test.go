package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

// stopping is a Conn of a process that is stopped when the first read deadline has passed.
type stopping struct {
	Conn
	stop time.Duration
}

func (s *stopping) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if mqttwire.TimedOut(err) {
		time.Sleep(s.stop)
		s.stop = 0
	}
	return n, err
}

func TestAProcessThatWasStoppedReadsWhatArrivedBeforeThePeerCountsAsDead(t *testing.T) {
	const stop, timeout = 45 * time.Second, 40 * time.Second
	for name, answers := range map[string]bool{"the answer has arrived": true, "there is no answer": false} {
		testkit.Run(t, name, func(t *testing.T) {
			h := newHub(t)
			h.wrap = func(c Conn) Conn { return &stopping{c, stop} }
			r, l := start(t, h, New(h.dial, &Options{KeepAlive: 30 * time.Second, PingTimeout: 10 * time.Second}))
			begun := time.Now()
			r.Send([]transport.Item{{Tag: 0, Msg: &transport.Message{}}})
			l.Expect(0x32)
			if answers {
				time.Sleep(timeout + stop/2)
				l.Puback(1)
				time.Sleep(stop)
				synctest.Wait()
				require.Equal(t, []uint16{0}, r.sink.Tags())
				require.Empty(t, r.ran)
				return
			}
			require.ErrorIs(t, r.requireLoss(t, transport.Timeout), mqttwire.ErrNoPong)
			require.Equal(t, timeout+stop+timeout, time.Since(begun), "one more time-out, and no third")
		})
	}
}

// patient is a Conn whose writes take this long.
type patient struct {
	Conn
	write time.Duration
}

func (p *patient) Write(b []byte) (int, error) {
	time.Sleep(p.write)
	return p.Conn.Write(b)
}

func TestADeadPeerIsFoundAtTheReadDeadlineHoweverItMoved(t *testing.T) {
	const timeout, transfer = 40 * time.Second, 97 * time.Second
	for name, c := range map[string]struct {
		size int           // of a message that is not acknowledged
		ping time.Duration // when the write of a ping begins that takes 2 s
		ends time.Duration
		pong time.Duration // when the hub answers
	}{
		"a large message":                          {size: 100_000, ends: timeout + transfer},
		"a slow write":                             {ping: 20 * time.Second, ends: 22*time.Second + timeout},
		"a slow write and a large message":         {100_000, 20 * time.Second, 22*time.Second + timeout + transfer, 0},
		"a slow write while a large message waits": {100_000, 50 * time.Second, timeout + transfer, 0},
		"an answer in a short extension": {size: 3000, pong: timeout + time.Second/2,
			ends: timeout + time.Second/2 + timeout + 2*time.Second},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			h, conn := newHub(t), new(patient)
			h.wrap = func(c Conn) Conn { conn.Conn = c; return conn }
			r, l := start(t, h, New(h.dial, &Options{KeepAlive: 30 * time.Second, PingTimeout: 10 * time.Second}))
			go func() { _, _ = l.Drain() }()
			begun := time.Now()
			r.Send([]transport.Item{{Tag: 0, Msg: &transport.Message{Body: make([]byte, c.size)}}})
			if c.pong > 0 {
				time.Sleep(c.pong)
				l.Send(0xD0, 0)
			}
			if c.ping > 0 {
				time.Sleep(c.ping)
				conn.write = 2 * time.Second
				r.Do(&transport.Request{Op: transport.OpPing})
			}
			require.ErrorIs(t, r.requireLoss(t, transport.Timeout), mqttwire.ErrNoPong)
			require.Equal(t, c.ends, time.Since(begun))
		})
	}
}
