package httpguard_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/httpguard"
)

// pieces is a connection whose peer sends data, in pieces of random sizes.
type pieces struct {
	net.Conn
	data   []byte
	random *rand.Rand
}

func (p *pieces) Write(b []byte) (int, error) { return len(b), nil }

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	most := len(p.data)
	if p.random.IntN(2) == 0 {
		most = min(most, 8)
	}
	n := copy(b, p.data[:1+p.random.IntN(most)])
	p.data = p.data[n:]
	var err error
	if len(p.data) == 0 && p.random.IntN(2) == 0 {
		err = io.EOF // together with the last bytes, as io.Reader allows
	}
	return n, err
}

// limit is larger than any head here.
const limit = 1 << 20

// let returns the part of data that a Conn passes as the answer to one request, and the final
// error.
func let(method string, data []byte, seed uint64) (through []byte, err error) {
	random := rand.New(rand.NewPCG(seed, 1))
	c := httpguard.New(&pieces{data: data, random: random}, limit)
	c.Next()
	if _, err := c.Write([]byte(method + " / HTTP/1.1\r\n\r\n")); err != nil {
		return nil, err
	}
	for {
		b := bytes.Repeat([]byte{'?'}, 1+random.IntN(64))
		n, err := c.Read(b)
		through = append(through, b[:n]...)
		if err != nil {
			_, last := c.Read(b)
			return through, last
		}
	}
}

// consumed returns how much of data net/http reads as the answer to one request, and its last head.
// r is nil if net/http refuses a head; n is then the end of that head.
func consumed(method string, data []byte) (n int, r *http.Response, err error) {
	in := bytes.NewReader(data)
	buffered := bufio.NewReader(in)
	for {
		begin := len(data) - in.Len() - buffered.Buffered()
		r, err = http.ReadResponse(buffered, &http.Request{Method: method})
		if err != nil {
			return begin + headSize(data[begin:]), nil, err
		}
		if r.StatusCode < 100 || r.StatusCode > 199 || r.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	if r.StatusCode == http.StatusSwitchingProtocols {
		return len(data), r, nil
	}
	_, err = io.Copy(io.Discard, r.Body)
	return len(data) - in.Len() - buffered.Buffered(), r, err
}

// headSize returns where the first empty line of data ends.
func headSize(data []byte) (n int) {
	for line := range bytes.Lines(data) {
		n += len(line)
		if string(line) == "\n" || string(line) == "\r\n" {
			break
		}
	}
	return n
}

func FuzzAnswers(f *testing.F) {
	for _, text := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 204 No Content\r\n\r\nmore",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nmore",
		"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\nContent-Length: 1\n\nxy",
		"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n \r\nContent-Length: 1\r\n\r\nxy",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: " +
			"0\r\n\r\nx",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nanything",
		"HTTP/1.1 200 OK\r\n\r\nuntil close",
		"HTTP/1.0 200 OK\r\n\r\nuntil close",
		"HTTP/1.1 099 Odd\r\nContent-Length: 1\r\n\r\nxy",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n00a " +
			"\t\r\n0123456789\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\nmore",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nA: b\r\nC: d\r\n e\r\n\r\nmore",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\n\nmore\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\nC: d\r\n\r\nmore",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5 ;x\r\nhello\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\ncontent-length: \t5 \t\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nContent-Length: 0005\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nContent-Length:\r\n 5\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n 5\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nContent Length: 5\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\n Content-Length: 5\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nA: b\rContent-Length: 5\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nA: b\x00\r\nContent-Length: 5\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nA: \x80\r\nContent-Length: 5\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 5\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\n: no name\r\nContent-Length: 5\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\n\nhello!",
		"HTTP/1.1 200 OK\n0\r\n\r\nhello!",
		"HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\nhello!",
		"HTTP/1.1 200\nContent-Length: 5\r\n\r\nhello!",
		"HTTP/1.1  200 OK\r\nContent-Length: 5\r\n\r\nhello!",
		"HTTP/1.1 2000 OK\r\nContent-Length: 5\r\n\r\nhello!",
		"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello!",
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\nmore",
		"HTTP/1.1 200 OK\r\nContent-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\nmore",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chun\u212Aed\r\n\r\n5\r\nhello\r\n0\r\n\r\nmore",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nmore",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nmore",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\nmore",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n0\r\nA: b\r\n\r\nmore",
		"220 mail.example.test ESMTP\r\n",
	} {
		f.Add([]byte(text), uint64(len(text)), false)
		f.Add([]byte(text), uint64(len(text)), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, head bool) {
		method := http.MethodGet
		if head {
			method = http.MethodHead
		}
		through, err := let(method, data, seed)
		require.True(t, bytes.HasPrefix(data, through), "let through what was not sent")
		want, r, failed := consumed(method, data)
		switch {
		case r != nil && r.StatusCode == http.StatusSwitchingProtocols:
			require.ErrorIs(t, err, httpguard.ErrUpgraded)
		case r == nil: // net/http closes the connection, so no body may pass
			require.LessOrEqual(t, len(through), want)
		case failed != nil: // net/http closes the connection
		case errors.Is(err, httpguard.ErrMalformed): // net/http accepts a bare LF, and CR CR LF, in trailers
			require.True(t, slices.Contains(r.TransferEncoding, "chunked"))
			require.LessOrEqual(t, len(through), want)
		case want < len(data):
			require.Equal(t, string(data[:want]), string(through))
			require.ErrorIs(t, err, httpguard.ErrUnsolicited)
		default:
			require.Equal(t, string(data), string(through))
			require.ErrorIs(t, err, io.EOF)
		}
	})
}
