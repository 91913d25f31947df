package atmodem_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// timedOut reports whether err is a deadline's, as the MQTT session asks.
func timedOut(err error) bool {
	var e interface{ Timeout() bool }
	return errors.As(err, &e) && e.Timeout()
}

func TestCloseEndsARead(t *testing.T) {
	eachKind(t, func(t *testing.T, s setup) {
		b := newBench(t, s)
		b.begin(t, s)
		c, err := b.modem.Dial(t.Context(), nil)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { _, err := c.Read(make([]byte, 10)); ended <- err }()
		time.Sleep(30 * time.Second)
		begin := time.Now()
		require.NoError(t, c.Close())
		require.Error(t, <-ended)
		require.Less(t, time.Since(begin), 2*time.Second)
		require.NoError(t, c.Close())
		_, err = c.Write([]byte("x"))
		require.Error(t, err)
	})
}

func TestADeadlineEndsARead(t *testing.T) {
	eachKind(t, func(t *testing.T, s setup) {
		b := newBench(t, s)
		b.begin(t, s)
		c, err := b.modem.Dial(t.Context(), nil)
		require.NoError(t, err)
		begin := time.Now()
		require.NoError(t, c.SetReadDeadline(begin.Add(15*time.Second)))
		_, err = c.Read(make([]byte, 10))
		require.True(t, timedOut(err), "%v", err)
		require.InDelta(t, 15, time.Since(begin).Seconds(), 0.5)
		b.emu.Kill()
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Second)))
		_, err = c.Read(make([]byte, 10))
		require.True(t, timedOut(err), "%v", err)
		begin = time.Now()
		require.NoError(t, c.Close(), "of a modem that hangs")
		require.Less(t, time.Since(begin), 3*time.Second)
	})
}

// News about the connection before, which come late, do not concern the present one.
func TestNewsOfAnEarlierConnectionAreIgnored(t *testing.T) {
	eachKind(t, func(t *testing.T, s setup) {
		b := newBench(t, s)
		b.begin(t, s)
		closed := []string{"+IPCLOSE: 0,1", "+CCH_PEER_CLOSED: 0", `+QIURC: "closed",0`, `+QSSLURC: "closed",0`}
		first, err := b.modem.Dial(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, first.Close())
		second, err := b.modem.Dial(t.Context(), nil)
		require.NoError(t, err)
		for _, text := range closed {
			b.emu.Say(text)
		}
		require.NoError(t, second.SetReadDeadline(time.Now().Add(5*time.Second)))
		_, err = second.Read(make([]byte, 10))
		require.True(t, timedOut(err), "%v", err)

		for _, text := range []string{"+IPCLOSE: 1,1", "+CCH_PEER_CLOSED: 1", `+QIURC: "closed",1`, `+QSSLURC: "closed",1`} {
			b.emu.Say(text)
		}
		require.NoError(t, second.SetReadDeadline(time.Now().Add(5*time.Second)))
		_, err = second.Read(make([]byte, 10))
		require.ErrorIs(t, err, io.EOF)
	})
}

// The clock can be set while there is a connection, without harm to it.
func TestTheClockIsSetDuringAConnection(t *testing.T) {
	eachKind(t, func(t *testing.T, s setup) {
		b := newBench(t, s)
		b.begin(t, s)
		b.runFor(t, b.config(time.Second), func() {
			for range 20 {
				time.Sleep(3 * time.Second)
				b.insist(t, b.modem.SetClock)
			}
		})
		require.Equal(t, 1, b.emu.Dials())
	})
}
