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
