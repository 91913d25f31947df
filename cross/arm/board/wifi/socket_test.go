package wifi

import (
	"encoding/hex"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	board  = Endpoint{[6]byte{0x28, 0, 0, 0, 0, 2}, [4]byte{192, 168, 1, 50}, 40123}
	server = Endpoint{[6]byte{0x0a, 0, 0, 0, 0, 1}, [4]byte{203, 0, 113, 9}, 123}
)

// The frames were made by another program.
const (
	oddFrame  = "0a00000000012800000000020800450000210000400040113ce8c0a80132cb0071099cbb007b000d43ea74696d653f"
	evenFrame = "0a000000000128000000000208004500001e0000400040113cebc0a80132cb0071099cbb007b000afc556869"
)

func TestFramesHaveTheBytesOfTheStandards(t *testing.T) {
	for want, payload := range map[string]string{oddFrame: "time?", evenFrame: "hi"} {
		require.Equal(t, want, hex.EncodeToString(appendFrame(nil, &board, &server, []byte(payload))))
	}
}

func TestFramesAreRead(t *testing.T) {
	frame := appendFrame(nil, &board, &server, []byte("time?"))
	from, to, payload, ok := parseFrame(append(frame, 0, 0, 0)) // Ethernet pads short frames
	require.True(t, ok)
	require.Equal(t, board, from)
	require.Equal(t, server, to)
	require.Equal(t, "time?", string(payload))
}

func TestDamagedFramesAreIgnored(t *testing.T) {
	frame := appendFrame(nil, &board, &server, []byte("time?"))
	for n := range len(frame) {
		_, _, _, ok := parseFrame(frame[:n])
		require.False(t, ok, "cut to %d bytes", n)
	}
	for i := 12; i < len(frame); i++ { // addresses of Ethernet have no checksum here
		frame[i] ^= 0x40
		_, _, _, ok := parseFrame(frame)
		require.False(t, ok, "byte %d changed", i)
		frame[i] ^= 0x40
	}
}

// Each of these frames has right checksums.
func TestUnsuitablePacketsAreIgnored(t *testing.T) {
	for name, spoil := range map[string]func(ip []byte){
		"fragment": func(ip []byte) { ip[6] = 0x20 }, "late fragment": func(ip []byte) { ip[7] = 1 },
		"TCP": func(ip []byte) { ip[9] = 6 }, "short header": func(ip []byte) { ip[0] = 0x44 },
		"long header": func(ip []byte) { ip[0] = 0x4f }, "version 6": func(ip []byte) { ip[0] = 0x65 },
	} {
		frame := appendFrame(nil, &board, &server, []byte("time?"))
		ip := frame[ethernetSize:]
		spoil(ip)
		ip[10], ip[11] = 0, 0
		check := ^fold(sum(0, ip[:ipSize]))
		ip[10], ip[11] = byte(check>>8), byte(check)
		_, _, _, ok := parseFrame(frame)
		require.False(t, ok, name)
	}
}

func TestASocketTakesOnlyItsPeersDatagrams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSocket(board, server, nil)
		for _, change := range []func(from, to *Endpoint){
			func(from, _ *Endpoint) { from.IP[3]++ }, func(from, _ *Endpoint) { from.Port++ },
			func(_, to *Endpoint) { to.IP[3]++ }, func(_, to *Endpoint) { to.Port++ },
		} {
			from, to := server, board
			change(&from, &to)
			s.Deliver(appendFrame(nil, &from, &to, []byte("no")))
		}
		require.NoError(t, s.SetReadDeadline(time.Now().Add(time.Second)))
		var p [48]byte
		began := time.Now()
		_, err := s.Read(p[:])
		var late interface{ Timeout() bool }
		require.True(t, errors.As(err, &late) && late.Timeout(), "%v", err)
		require.InDelta(t, 1, time.Since(began).Seconds(), 0.01)

		s.Deliver(appendFrame(nil, &server, &board, []byte("first")))
		s.Deliver(appendFrame(nil, &server, &board, []byte("dropped")))
		n, err := s.Read(p[:])
		require.NoError(t, err)
		require.Equal(t, "first", string(p[:n]))
	})
}

func TestADatagramThatIsTooLongIsCutOrRefused(t *testing.T) {
	s := NewSocket(board, server, func([]byte) error { return nil })
	s.Deliver(appendFrame(nil, &server, &board, make([]byte, 1000)))
	n, err := s.Read(make([]byte, 2000))
	require.NoError(t, err)
	require.Equal(t, maxPayload, n)
	_, err = s.Write(make([]byte, maxPayload+1))
	require.ErrorIs(t, err, errTooLong)
}

func TestCloseUnblocksRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSocket(board, server, func([]byte) error { return nil })
		ended := make(chan error, 1)
		go func() {
			_, err := s.Read(make([]byte, 48))
			ended <- err
		}()
		time.Sleep(time.Minute)
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-ended, errClosed)
		_, err := s.Write([]byte("x"))
		require.ErrorIs(t, err, errClosed)
	})
}

func TestASocketSendsItsFrame(t *testing.T) {
	var sent string
	s := NewSocket(board, server, func(frame []byte) error {
		sent = hex.EncodeToString(frame)
		return nil
	})
	n, err := s.Write([]byte("time?"))
	require.NoError(t, err)
	require.Equal(t, 5, n)
	require.Equal(t, oddFrame, sent)
}

func FuzzFrame(f *testing.F) {
	for _, text := range []string{oddFrame, evenFrame} {
		frame, err := hex.DecodeString(text)
		require.NoError(f, err)
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		from, to, payload, ok := parseFrame(frame)
		if !ok {
			return
		}
		again, there, same, ok := parseFrame(appendFrame(nil, &from, &to, payload))
		require.True(t, ok)
		require.Equal(t, from, again)
		require.Equal(t, to, there)
		require.Equal(t, string(payload), string(same))
	})
}
