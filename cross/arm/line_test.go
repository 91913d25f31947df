package arm

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
)

// script is a line that brings what it was given, and after delay what is said on asking for the time.
type script struct {
	in     string
	answer string
	delay  time.Duration
	asked  time.Time
}

func (s *script) Read(p []byte) int {
	if !s.asked.IsZero() && time.Since(s.asked) >= s.delay {
		s.in, s.asked = s.in+s.answer, time.Time{}
	}
	n := copy(p, s.in)
	s.in = s.in[n:]
	return n
}

func (s *script) Write(p []byte) {
	if string(p) == "T" {
		s.asked = time.Now()
	}
}

func (*script) Pause() { time.Sleep(time.Millisecond) } // fake

// A byte that was lost costs one command, not the one behind it.
func TestLineFindsItsStepAgain(t *testing.T) {
	for _, in := range []string{"\x10H\x10Ca", "\x10C\x10Ca", "\x10T0123\x10Ca", "\x10T01234567\xff\x10Ca", "\x10\x10\x10Ca", "\x10?\x10Ca"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := board.NewModem(&script{in: in}).Dial(ctx); err != nil {
				t.Errorf("%q: %v", in, err)
			}
		})
	}
}

// What follows a time that was cut short is data again.
func TestLineReadsDataAfterACutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := board.NewModem(&script{in: "\x10Ca\x10T012345xyz\x10\x10"}).Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got [16]byte
		if n, err := c.Read(got[:]); err != nil || string(got[:n]) != "xyz\x10" {
			t.Errorf("%q, %v", got[:n], err)
		}
	})
}

// Each SetClock asks anew, and takes no answer but its own.
func TestModemSetsItsClockAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ahead := time.Hour
		b.modem.now = func() time.Time { return time.Now().Add(ahead) }
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
		// The late answer lies on the line for hours; nothing takes it for the present time.
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

// While a connection is up its reader takes the time.
func TestModemTellsTheTimeToAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := &script{in: "\x10Ca", answer: fmt.Sprintf("\x10T%016x", time.Now().Add(time.Hour).UnixMilli()), delay: 500 * time.Microsecond}
		modem := board.NewModem(line)
		c, err := modem.Dial(t.Context())
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
