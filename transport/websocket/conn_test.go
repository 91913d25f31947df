package websocket

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

func reading(r io.Reader) *conn {
	return &conn{in: bufio.NewReaderSize(r, readSize), pongs: make(chan struct{}, 1)}
}

func TestFramesThatBreakTheProtocol(t *testing.T) {
	for name, sent := range map[string]string{
		"an RSV bit":                 "\x92\x00",
		"a masked frame":             "\x82\x80\x00\x00\x00\x00",
		"text":                       "\x81\x00",
		"text in a message":          "\x02\x00\x01\x00",
		"a message within another":   "\x02\x00\x82\x00",
		"a continuation of nothing":  "\x80\x00",
		"a continuation too many":    "\x02\x00\x80\x00\x80\x00",
		"an unknown data opcode":     "\x83\x00",
		"an unknown control opcode":  "\x8b\x00",
		"half a ping":                "\x09\x00",
		"a pong with a long length":  "\x8a\x7e\x00\x01x",
		"a close with a huge length": "\x88\x7f\x00\x00\x00\x00\x00\x00\x00\x01x",
		"a length of 64 bits":        "\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x01x",
	} {
		t.Run(name, func(t *testing.T) {
			c := reading(strings.NewReader(sent))
			for range 2 { // a violation is no time-out
				n, err := c.Read(make([]byte, 8))
				require.Zero(t, n)
				require.ErrorIs(t, err, transport.Protocol)
			}
		})
	}
}

// slow returns a byte for each second call, and a time-out for the others.
type slow struct {
	sent  []byte
	ready bool
}

func (s *slow) Read(p []byte) (int, error) {
	if s.ready = !s.ready; s.ready {
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(p[:1], s.sent)
	if s.sent = s.sent[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Any bytes end in an error, the same one after any pauses.
func FuzzRead(f *testing.F) {
	for _, sent := range []string{"\x02\x7e\x00\x02ab\x89\x02xy\x80\x01c\x88\x05\x03\xe9bye", "\x82\x7f\x7f\xff\xff\xff" +
		"\xff\xff\xff\xffx", "\x82\x02a"} {
		f.Add([]byte(sent))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		got := func(r io.Reader) (read, pong []byte, end error) {
			c := reading(r)
			for {
				p := make([]byte, 16)
				n, err := c.Read(p)
				read = append(read, p[:n]...)
				if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					return read, c.pong, err
				}
			}
		}
		read, pong, end := got(bytes.NewReader(sent))
		slowRead, slowPong, slowEnd := got(&slow{sent: sent})
		require.Equal(t, read, slowRead)
		require.Equal(t, pong, slowPong)
		require.Equal(t, end, slowEnd)
		require.LessOrEqual(t, len(read), len(sent))
	})
}

func TestAMaskOfAnyLength(t *testing.T) {
	mask := [4]byte{1, 2, 3, 4}
	for n := range 20 {
		p := make([]byte, n)
		applyMask(p, mask)
		for i, got := range p {
			require.Equal(t, mask[i%4], got, "byte %d of %d", i, n)
		}
	}
}
