package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
)

// A oneConn is a listener with one connection.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error   { close(l.closed); return nil }
func (l *oneConn) Addr() net.Addr { return memconn.Addr("mem") }

// A client that reads nothing loses its connection; a slow one gets the whole answer.
func TestAnAnswerThatNobodyReadsEnds(t *testing.T) {
	const size = 1 << 20
	for name, slow := range map[string]bool{"reads nothing": false, "reads slowly": true} {
		testkit.Run(t, name, func(t *testing.T) {
			client, conn := memconn.Pair("client", "hub")
			l := &oneConn{make(chan net.Conn, 1), make(chan struct{})}
			l.conn <- conn
			answered := make(chan struct{})
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				defer close(answered)
				reply(w, http.StatusOK, strings.Repeat("x", size))
			})}
			go server.Serve(l)
			_, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: hub\r\n\r\n")
			require.NoError(t, err)
			if !slow {
				<-answered // time is fake: without a limit the bubble would have nothing to wait for
			}
			answer, err := http.ReadResponse(bufio.NewReader(client), nil)
			require.NoError(t, err)
			require.EqualValues(t, size+len("\"\"\n"), answer.ContentLength)
			var got, n int64
			for err == nil {
				n, err = io.CopyN(io.Discard, answer.Body, writePart)
				got += n
				time.Sleep(writeTime * 3 / 4)
			}
			if slow {
				require.ErrorIs(t, err, io.EOF)
				require.Equal(t, answer.ContentLength, got)
			} else {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				require.Less(t, got, answer.ContentLength)
			}
			require.NoError(t, server.Close())
			client.Close()
		})
	}
}
