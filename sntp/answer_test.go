package sntp

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

const nonce = 0x0123456789abcdef

// good returns an answer to a request with nonce, from a server that shows t.
func good(t time.Time) []byte {
	s := timeServer{now: func() time.Time { return t }}
	return s.answer(appendRequest(nil, nonce))
}

func TestEveryFieldOfAnAnswerIsChecked(t *testing.T) {
	at := time.Date(2031, 5, 6, 7, 8, 9, 500_000_000, time.UTC)
	for name, c := range map[string]struct {
		change func(p []byte)
		err    error
	}{
		"a good answer":               {func([]byte) {}, nil},
		"version 3":                   {func(p []byte) { p[0] = 3<<3 | 4 }, nil},
		"a leap second is near":       {func(p []byte) { p[0] |= 1 << 6 }, nil},
		"stratum 15":                  {func(p []byte) { p[1] = 15 }, nil},
		"distance of 1 s":             {func(p []byte) { p[5], p[6], p[7], p[9], p[10], p[11] = 2, 0, 0, 0, 0, 0 }, nil},
		"version 2":                   {func(p []byte) { p[0] = 2<<3 | 4 }, errStray},
		"version 5":                   {func(p []byte) { p[0] = 5<<3 | 4 }, errStray},
		"a client":                    {func(p []byte) { p[0] = 4<<3 | 3 }, errStray},
		"a broadcast":                 {func(p []byte) { p[0] = 4<<3 | 5 }, errStray},
		"another request":             {func(p []byte) { p[31] ^= 1 }, errStray},
		"another request, first byte": {func(p []byte) { p[24] ^= 0x80 }, errStray},
		"not synchronised":            {func(p []byte) { p[0] |= 3 << 6 }, errNoTime},
		"stratum 16":                  {func(p []byte) { p[1] = 16 }, errNoTime},
		"distance above 1 s": {func(p []byte) {
			p[5], p[6], p[7], p[9], p[10], p[11] = 2, 0, 0, 0, 0, 1
		}, errDistance},
		"delay of the largest size": {func(p []byte) { p[4], p[5], p[6], p[7] = 255, 255, 255, 255 }, errDistance},
		"kiss DENY":                 {func(p []byte) { p[1] = 0; copy(p[12:], "DENY") }, errDenied},
		"kiss RSTR":                 {func(p []byte) { p[1] = 0; copy(p[12:], "RSTR") }, errDenied},
		"kiss RATE":                 {func(p []byte) { p[1] = 0; copy(p[12:], "RATE") }, errRate},
		"kiss INIT":                 {func(p []byte) { p[1] = 0; copy(p[12:], "INIT") }, errNoTime},
		"kiss DENY for another request": {func(p []byte) {
			p[1], p[24] = 0, p[24]^1
			copy(p[12:], "DENY")
		}, errStray},
		"no time":                {func(p []byte) { clear(p[40:]) }, errImplausible},
		"sent before received":   {func(p []byte) { p[35]++ }, errImplausible},
		"held for over a minute": {func(p []byte) { p[35] -= 61 }, errImplausible},
		"a time in the past": {func(p []byte) {
			binary.BigEndian.PutUint64(p[32:], stamp(at.AddDate(-10, 0, 0)))
			copy(p[40:], p[32:40])
		}, errImplausible},
		"1970": {func(p []byte) {
			binary.BigEndian.PutUint64(p[32:], stamp(time.Unix(1, 0)))
			copy(p[40:], p[32:40])
		}, errImplausible},
	} {
		t.Run(name, func(t *testing.T) {
			p := good(at)
			c.change(p)
			a, err := parse(p, nonce, &transport.Credentials{})
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.WithinDuration(t, at, a.sent, time.Nanosecond)
			require.Zero(t, a.held)
		})
	}
	for n := range packetSize {
		_, err := parse(good(at)[:n], nonce, &transport.Credentials{})
		require.ErrorIs(t, err, errStray, "cut to %d bytes", n)
	}
	_, err := parse(append(good(at), make([]byte, 20)...), nonce, &transport.Credentials{})
	require.NoError(t, err, "a signature behind the answer")
}

func TestSecondsBeginAgainIn2036(t *testing.T) {
	for _, text := range []string{
		"2026-11-01T00:00:00Z", "2036-02-07T06:28:15Z", "2036-02-07T06:28:15.999999999Z", "2036-02-07T06:28:16.1Z",
		"2036-02-07T06:28:17Z", "2038-01-19T03:14:08Z", "2094-10-01T00:00:00Z",
	} {
		at, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		a, err := parse(good(at), nonce, &transport.Credentials{})
		require.NoError(t, err, text)
		require.WithinDuration(t, at, a.sent, time.Nanosecond, text)
	}
	late := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err := parse(good(late), nonce, &transport.Credentials{})
	require.ErrorIs(t, err, errImplausible, "more than 68 years ahead")
	a, err := parse(good(late), nonce, &transport.Credentials{Earliest: late.AddDate(-1, 0, 0)})
	require.NoError(t, err)
	require.WithinDuration(t, late, a.sent, time.Nanosecond)
}

// The answer may be held while the era turns.
func TestAnEraThatTurnsInTheServer(t *testing.T) {
	turn := time.Date(2036, 2, 7, 6, 28, 16, 250_000_000, time.UTC)
	p := good(turn)
	binary.BigEndian.PutUint64(p[32:], stamp(turn.Add(-500*time.Millisecond)))
	a, err := parse(p, nonce, &transport.Credentials{})
	require.NoError(t, err)
	require.Equal(t, turn, a.sent.UTC())
	require.Equal(t, 500*time.Millisecond, a.held)
}

func TestARequestSaysNothingOfTheDevice(t *testing.T) {
	p := appendRequest(nil, nonce)
	require.Len(t, p, 48)
	require.Equal(t, byte(0x23), p[0])
	require.Equal(t, make([]byte, 39), p[1:40])
	require.Equal(t, []byte{1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}, p[40:])
}

func FuzzAnswer(f *testing.F) {
	f.Add(good(time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)))
	f.Add(good(time.Date(2037, 5, 6, 7, 8, 9, 0, time.UTC)))
	kissed := good(time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC))
	kissed[1] = 0
	f.Add(kissed)
	f.Fuzz(func(t *testing.T, p []byte) {
		whole := string(p)
		a, err := parse(p, nonce, &transport.Credentials{})
		require.Equal(t, whole, string(p))
		if err != nil {
			require.NotNil(t, transport.Find(err))
			return
		}
		var c transport.Credentials
		require.False(t, c.Implausible(a.sent))
		require.True(t, a.sent.Before(time.Date(2095, 1, 1, 0, 0, 0, 0, time.UTC)))
		require.GreaterOrEqual(t, a.held, time.Duration(0))
		require.LessOrEqual(t, a.held, time.Minute)
		require.Equal(t, uint64(nonce), binary.BigEndian.Uint64(p[24:]))
	})
}
