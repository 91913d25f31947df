package httpguard_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/httpguard"
	"github.com/hubline-iot/hubline/internal/memconn"
)

const (
	request = "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
	short   = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
)

// pair returns a Conn and its peer, which reads nothing and has an unlimited buffer.
func pair(t *testing.T, limit int) (*httpguard.Conn, *memconn.Conn) {
	t.Helper()
	a, b := memconn.Pair("a:1", "b:2")
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
	})
	return httpguard.New(a, limit), b
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
}

// ask sends a request, and the peer sends answer.
func ask(t *testing.T, c *httpguard.Conn, peer net.Conn, answer string) {
	t.Helper()
	c.Next()
	say(t, c, request)
	say(t, peer, answer)
}

// requireText checks that reading c returns text.
func requireText(t *testing.T, text string, c io.Reader) {
	t.Helper()
	b := make([]byte, len(text))
	n, err := io.ReadFull(c, b)
	require.NoError(t, err)
	require.Equal(t, text, string(b[:n]))
}

// requireOver checks that c is unusable because of want.
func requireOver(t *testing.T, want error, c *httpguard.Conn) {
	t.Helper()
	b := []byte("........")
	for range 2 {
		n, err := c.Read(b)
		require.ErrorIs(t, err, want)
		require.Zero(t, n)
	}
	c.Next()
	_, err := c.Write([]byte(request))
	require.ErrorIs(t, err, want)
	require.ErrorIs(t, c.Err(), want)
}

func TestAnswersComeThrough(t *testing.T) {
	c, peer := pair(t, limit)
	for range 3 {
		ask(t, c, peer, short)
		requireText(t, short, c)
		require.NoError(t, c.Err())
	}
	require.Nil(t, c.TLS())
}

func TestBytesBeforeARequestEndTheConnection(t *testing.T) {
	t.Run("the first one", func(t *testing.T) {
		c, peer := pair(t, limit)
		say(t, peer, short)
		requireOver(t, httpguard.ErrUnsolicited, c)
	})
	t.Run("a later one", func(t *testing.T) {
		c, peer := pair(t, limit)
		ask(t, c, peer, short)
		requireText(t, short, c)
		say(t, peer, short)
		requireOver(t, httpguard.ErrUnsolicited, c)
	})
	t.Run("one that is announced and not begun", func(t *testing.T) {
		c, peer := pair(t, limit)
		c.Next()
		say(t, peer, short)
		requireOver(t, httpguard.ErrUnsolicited, c)
	})
}

func TestBytesBehindAnAnswerAreCleared(t *testing.T) {
	c, peer := pair(t, limit)
	ask(t, c, peer, short+"secret")
	b := make([]byte, 100)
	n, err := c.Read(b)
	require.ErrorIs(t, err, io.EOF, "net/http does not keep the connection")
	require.Equal(t, short, string(b[:n]))
	require.Equal(t, make([]byte, 100-n), b[n:])
	requireOver(t, httpguard.ErrUnsolicited, c)
}

// A peer may refuse a request before it has arrived whole. The rest of that request starts no new
// answer.
func TestAnEarlyAnswerIsTheOnlyOne(t *testing.T) {
	c, peer := pair(t, limit)
	c.Next()
	say(t, c, "POST / HTTP/1.1\r\nContent-Length: 8\r\n\r\n")
	say(t, peer, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
	requireText(t, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n", c)
	say(t, c, "the rest")
	say(t, peer, short)
	requireOver(t, httpguard.ErrUnsolicited, c)
}

func TestTheBodyOfARequestDoesNotStartAnAnswer(t *testing.T) {
	c, peer := pair(t, limit)
	c.Next()
	say(t, c, "POST / HTTP/1.1\r\nContent-Length: 8\r\n\r\n")
	say(t, peer, short[:30])
	requireText(t, short[:30], c)
	say(t, c, "the rest")
	say(t, peer, short[30:]+short)
	requireText(t, short[30:], c)
	requireOver(t, httpguard.ErrUnsolicited, c)
}

func TestAnAnswerToHEADHasNoBody(t *testing.T) {
	c, peer := pair(t, limit)
	c.Next()
	say(t, c, "HEAD / HTTP/1.1\r\n\r\n")
	head := strings.TrimSuffix(short, "ok")
	say(t, peer, head)
	requireText(t, head, c)
	say(t, peer, "ok")
	requireOver(t, httpguard.ErrUnsolicited, c)
}

func TestAConnectionIsNotUpgraded(t *testing.T) {
	c, peer := pair(t, limit)
	ask(t, c, peer, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
	_, err := io.ReadAll(c)
	require.ErrorIs(t, err, httpguard.ErrUpgraded)
	requireOver(t, httpguard.ErrUpgraded, c)
}

func TestHeadsAreBounded(t *testing.T) {
	c, peer := pair(t, 100)
	ask(t, c, peer, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 100))
	_, err := io.ReadAll(c)
	require.ErrorIs(t, err, httpguard.ErrLongHead)
	requireOver(t, httpguard.ErrLongHead, c)
}

func TestChunksAreReadStrictly(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, body := range []string{
		"0\r\n\r\n",
		"5\r\nhello\r\n0\r\n\r\n",
		"00a \t\r\n0123456789\r\nA;x=\"y z\"\r\n0123456789\r\n000\r\n\r\n",
		"1\r\nx\r\n0\r\nA: b\r\n\r\n",
		"1\r\nx\r\n0;x\r\nA: b\r\n c\r\nD: e\r\n\r\n",
	} {
		c, peer := pair(t, limit)
		ask(t, c, peer, head+body)
		requireText(t, head+body, c)
		require.NoError(t, c.Err())
		say(t, peer, "x")
		requireOver(t, httpguard.ErrUnsolicited, c)
	}
	for _, body := range []string{
		"\r\n", ";x\r\n", "x\r\n", "-1\r\n", "+1\r\n", "0x1\r\n", " 1\r\n", "1 1\r\n", "5\nhello\r\n", "5\rhello", "5 ;x\r\n",
		"00000000000000001\r\n", "5;x\nhello\r\n", "5\r\nhello!", "5\r\nhello\n", "5\r\nhello\r\r", "5;" + strings.Repeat("x",
			5000),
		"0\r\n\n", "0\r\nA: b\n\r\n", "0\r\nA: b\r\r\n", "0\r\nA: " + strings.Repeat("x", 5000),
	} {
		c, peer := pair(t, limit)
		ask(t, c, peer, head+body)
		require.NoError(t, peer.CloseWrite())
		_, err := io.ReadAll(c)
		require.ErrorIs(t, err, httpguard.ErrMalformed, "%.20q", body)
		requireOver(t, httpguard.ErrMalformed, c)
	}
}

func TestDeadlinesAndEndsAreThoseOfTheConnectionBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, peer := pair(t, limit)
		ask(t, c, peer, short[:20])
		requireText(t, short[:20], c)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Second)))
		began := time.Now()
		_, err := c.Read(make([]byte, 10))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		require.NoError(t, c.SetReadDeadline(time.Time{}))
		say(t, peer, short[20:])
		requireText(t, short[20:], c)

		require.NoError(t, peer.CloseWrite())
		_, err = c.Read(make([]byte, 10))
		require.ErrorIs(t, err, io.EOF)
		say(t, c, "the other direction is open")
		require.NoError(t, c.Err(), "the peer sent nothing")

		require.NoError(t, c.Close())
		_, err = c.Read(make([]byte, 10))
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

// endless is a connection whose Read always fills its argument.
type endless struct{ net.Conn }

func (endless) Read(b []byte) (int, error)  { return len(b), nil }
func (endless) Write(b []byte) (int, error) { return len(b), nil }

// begun is a connection with an answer whose body is larger than any test reads.
type begun struct {
	endless
	head io.Reader
}

func (b *begun) Read(p []byte) (int, error) {
	if n, err := b.head.Read(p); err == nil {
		return n, nil
	}
	return len(p), nil
}

func TestALargeReadAllocatesNothing(t *testing.T) {
	for _, head := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 9000000000000\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\n",
		"HTTP/1.1 200 OK\r\n\r\n",
	} {
		c := httpguard.New(&begun{head: bytes.NewReader([]byte(head))}, limit)
		c.Next()
		say(t, c, request)
		requireText(t, head, c)
		b := make([]byte, 64<<10)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if n, err := c.Read(b); n != len(b) || err != nil {
				t.Fatal(n, err)
			}
		}))
	}
}

// repeated is a connection whose peer sends the same answer to each request.
type repeated struct {
	endless
	answer string
}

func (r *repeated) Read(b []byte) (int, error) { return copy(b, r.answer), nil }

func TestAnOrdinaryAnswerAllocatesNothing(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 204 No Content\r\nDate: Sun, 01 Mar 2026 00:00:00 GMT\r\nServer: x/1.0 (y; z)\r\n\r\n",
		"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nConnection: keep-alive\r\nETag: \"a\"\r\n\r\nok",
		"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	} {
		c := httpguard.New(&repeated{answer: answer}, limit)
		asked, b := []byte(request), make([]byte, 1<<10)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			c.Next()
			if _, err := c.Write(asked); err != nil {
				t.Fatal(err)
			}
			if n, err := c.Read(b); n != len(answer) || err != nil {
				t.Fatal(n, err)
			}
		}), "%.30q", answer)
	}
}
