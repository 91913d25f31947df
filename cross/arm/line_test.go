package arm

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// script is a line with a fixed input, and with an answer to the request for the time after a
// delay.
type script struct {
	in     string
	answer string
	delay  time.Duration

	mu    sync.Mutex // readers and SetClock use the line at the same time
	asked time.Time
}

func (s *script) Read(p []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked.IsZero() && time.Since(s.asked) >= s.delay {
		s.in, s.asked = s.in+s.answer, time.Time{}
	}
	n := copy(p, s.in)
	s.in = s.in[n:]
	return n
}

func (s *script) Write(p []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(p) == "T" {
		s.asked = time.Now()
	}
	return len(p)
}

func (*script) Pause() { time.Sleep(time.Millisecond) } // fake time

// A lost byte costs one command, not the one after it.
func TestLineResynchronizes(t *testing.T) {
	for _, in := range []string{"\x10H\x10Ca", "\x10C\x10Ca", "\x10T0123\x10Ca", "\x10T01234567\xff\x10Ca",
		"\x10\x10\x10Ca", "\x10?\x10Ca"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := board.NewModem(&script{in: in}).Dial(ctx, nil); err != nil {
				t.Errorf("%q: %v", in, err)
			}
		})
	}
}

// Bytes after a truncated time are data again.
func TestLineReadsDataAfterACutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := board.NewModem(&script{in: "\x10Ca\x10T012345xyz\x10\x10"}).Dial(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got [16]byte
		if n, err := c.Read(got[:]); err != nil || string(got[:n]) != "xyz\x10" {
			t.Errorf("%q, %v", got[:n], err)
		}
	})
}

// Each SetClock sends a new request, and accepts only its own answer.
func TestModemSetsItsClockAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ahead := time.Hour
		b.modem.Now = func() time.Time { return time.Now().Add(ahead) }
		if !b.board.SetClock(time.Second) {
			t.Error("no answer")
		}
		if d := time.Until(b.board.Now()); d < ahead-time.Second || d > ahead {
			t.Errorf("the clock is ahead by %v, want %v", d, ahead)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		line := &script{answer: fmt.Sprintf("\x10T%016x", time.Now().UnixMilli()), delay: 100 * time.Millisecond}
		modem := board.NewModem(line)
		if !modem.SetClock(time.Second) {
			t.Error("no answer")
		}
		line.delay = time.Hour
		start := time.Now()
		if modem.SetClock(time.Second) {
			t.Error("there was no answer to the second question")
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("waited %v", d)
		}
		// The late answer stays on the line for hours; the modem must not take it for the current time.
		time.Sleep(5 * time.Hour)
		before := modem.Now()
		if modem.SetClock(time.Second) {
			t.Error("an answer to an earlier question was taken")
		}
		if d := modem.Now().Sub(before); d != time.Second {
			t.Errorf("the clock went on by %v in 1 s", d)
		}
	})
}

// Noise can change a digit of the time. It does not set the clock.
func TestModemAsksUntilTwoAnswersAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var asked atomic.Int32
		b.modem.Now = func() time.Time {
			if asked.Add(1) == 1 {
				return time.Now().AddDate(20, 0, 0)
			}
			return time.Now().Add(time.Hour)
		}
		if !b.board.SetClock(time.Second) {
			t.Error("no answer")
		}
		if d := time.Until(b.board.Now()); d < time.Hour-time.Second || d > time.Hour {
			t.Errorf("the clock is ahead by %v, want an hour", d)
		}
		if n := asked.Load(); n != 3 {
			t.Errorf("asked %d times, want 3", n)
		}
	})
}

// While a connection is open its reader processes the time.
func TestModemSetsTheTimeDuringARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := &script{in: "\x10Ca", answer: fmt.Sprintf("\x10T%016x", time.Now().Add(time.Hour).UnixMilli()),
			delay: 500 * time.Microsecond}
		modem := board.NewModem(line)
		c, err := modem.Dial(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := c.Read(make([]byte, 1))
			ended <- err
		}()
		if !modem.SetClock(time.Second) {
			t.Error("no answer")
		}
		if d := time.Until(modem.Now()); d < time.Hour-time.Second {
			t.Errorf("the clock is ahead by %v, want an hour", d)
		}
		_ = c.Close()
		if err := <-ended; err == nil {
			t.Error("Read ended without an error")
		}
	})
}

// line is a line whose other end connects at once. It accepts nothing while full returns true.
type line struct {
	in   []byte
	sent []byte
	full bool
}

func (l *line) Read(p []byte) int {
	n := copy(p, l.in)
	l.in = l.in[n:]
	return n
}

func (l *line) Write(p []byte) int {
	if l.full {
		return 0
	}
	if len(p) == 2 && p[0] == 'D' {
		l.in = append(l.in, board.Escape, 'C', p[1])
	}
	l.sent = append(l.sent, p[0])
	return 1 // as in a nearly full FIFO
}

func (*line) Pause() { time.Sleep(time.Millisecond) }

// A line that accepts nothing must not block Close, nor a Write for ever. The other end must
// understand the bytes after that.
func TestALineThatAcceptsNothing(t *testing.T) {
	dial := func(t *testing.T) (*line, engine.Conn) {
		l := &line{}
		conn, err := board.NewModem(l).Dial(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		l.sent = nil
		return l, conn
	}
	testkit.Run(t, "Close", func(t *testing.T) {
		l, conn := dial(t)
		l.full = true
		wrote := make(chan error, 1)
		go func() { _, err := conn.Write([]byte("x")); wrote <- err }()
		time.Sleep(time.Second)
		began := time.Now()
		if err := conn.Close(); err != nil || time.Since(began) > 500*time.Millisecond {
			t.Errorf("Close: %v after %v", err, time.Since(began))
		}
		if err := <-wrote; err == nil {
			t.Error("Write has sent what the line did not take")
		}
	})
	testkit.Run(t, "Write", func(t *testing.T) {
		l, conn := dial(t)
		l.full = true
		began := time.Now()
		_, err := conn.Write([]byte("x"))
		if e, ok := err.(interface{ Timeout() bool }); !ok || !e.Timeout() || time.Since(began) > 11*time.Second {
			t.Errorf("Write: %v after %v", err, time.Since(began))
		}
		l.full = false
		_ = conn.Close()
		if want := "\x00\x10Ha"; string(l.sent) != want {
			t.Errorf("sent %q, want %q", l.sent, want)
		}
	})
	testkit.Run(t, "slow", func(t *testing.T) {
		l, conn := dial(t)
		if n, err := conn.Write([]byte("a\x10b")); n != 3 || err != nil {
			t.Errorf("Write: %d, %v", n, err)
		}
		if want := "a\x10\x10b"; string(l.sent) != want {
			t.Errorf("sent %q, want %q", l.sent, want)
		}
	})
}

// A board that was reset, and so did not hang up, loses no dial by its earlier connection.
func TestABoardThatWasResetDialsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for range 3 {
			if _, err := b.board.Dial(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			b.board = board.NewModem(b.port)
			if !b.board.SetClock(time.Second) {
				t.Fatal("no time")
			}
		}
	})
}

func TestModemConnectsToTheNamedHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		dial := b.modem.Dial
		var hosts []string
		b.modem.Dial = func(ctx context.Context, network, host string) (net.Conn, error) {
			hosts = append(hosts, host)
			return dial(ctx, network, host)
		}
		for _, host := range []string{"dps.example.test", "hub.example.test"} {
			c, err := b.board.DialTo(t.Context(), host)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
		if got := strings.Join(hosts, " "); got != "dps.example.test hub.example.test" {
			t.Error(got)
		}
	})
}
