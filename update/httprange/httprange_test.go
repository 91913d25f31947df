package httprange

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update"
)

// script is a server that answers the requests, over all connections, with these texts. An answer
// that ends with "CLOSE" ends the connection.
type script struct {
	answers  []string
	requests []string
	conns    int
}

func (s *script) dial(context.Context) (Conn, error) {
	near, far := memconn.Pair("board", "server")
	s.conns++
	go s.serve(far)
	return near, nil
}

// serve ends with the connection.
func (s *script) serve(c net.Conn) {
	defer c.Close()
	for {
		var request []byte
		for b := make([]byte, 1); !bytes.HasSuffix(request, []byte("\r\n\r\n")); request = append(request, b[0]) {
			if _, err := c.Read(b); err != nil {
				return
			}
		}
		s.requests = append(s.requests, string(request))
		if len(s.answers) == 0 {
			_, _ = io.Copy(io.Discard, c) // silence, until the other end hangs up
			return
		}
		text, end := strings.CutSuffix(s.answers[0], "CLOSE")
		s.answers = s.answers[1:]
		if _, err := io.WriteString(c, text); err != nil || end {
			return
		}
	}
}

// part is an answer with content[from:to] of an image.
func part(content string, from, to int, etag string) string {
	return fmt.Sprintf("HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\nContent-Range: bytes %d-%d/%d\r\n"+
		"ETag: %s\r\n\r\n%s", to-from, from, to-1, len(content), etag, content[from:to])
}

func newSource(t *testing.T, dial Dial) *Source {
	t.Helper()
	s, err := New(dial, &Options{Host: "files.example.com", Path: "/7.bin?sig=secret"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

const image = "0123456789abcdefghijklmnopqrstuvwxyz"

func TestOneRequestForTheWholeImage(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := &script{answers: []string{part(image, 0, 36, `"v1"`)}}
		s := newSource(t, server.dial)
		p := make([]byte, 9)
		for off := 0; off < 36; off += 9 {
			require.NoError(t, s.ReadAt(t.Context(), p, int64(off)))
			require.Equal(t, image[off:off+9], string(p))
		}
		require.Equal(t, []string{"GET /7.bin?sig=secret HTTP/1.1\r\nHost: files.example.com\r\nRange: bytes=0-\r\n" +
			"Accept-Encoding: identity\r\n\r\n"}, server.requests)
		require.NoError(t, s.Close())
	})
}

func TestALostConnectionContinues(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		cut := part(image, 0, 36, `"v1"`)
		server := &script{answers: []string{cut[:len(cut)-20] + "CLOSE", part(image, 10, 36, `"v1"`)}}
		s := newSource(t, server.dial)
		p := make([]byte, 10)
		require.NoError(t, s.ReadAt(t.Context(), p, 0))
		require.ErrorIs(t, s.ReadAt(t.Context(), p, 10), transport.Network)
		require.NoError(t, s.ReadAt(t.Context(), p, 10))
		require.Equal(t, "abcdefghij", string(p))
		require.Equal(t, 2, server.conns)
		require.Contains(t, server.requests[1], "Range: bytes=10-\r\n")
		require.Contains(t, server.requests[1], "If-Match: \"v1\"\r\nIf-Range: \"v1\"\r\n")
		require.NoError(t, s.Close())
	})
}

func TestAnotherOffsetIsAnotherRequest(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := &script{answers: []string{part(image, 0, 36, `"v1"`), part(image, 4, 36, `"v1"`)}}
		s := newSource(t, server.dial)
		p := make([]byte, 8)
		require.NoError(t, s.ReadAt(t.Context(), p, 0))
		require.NoError(t, s.ReadAt(t.Context(), p, 4))
		require.Equal(t, "456789ab", string(p))
		require.Equal(t, 2, server.conns)
		require.NoError(t, s.Close())
	})
}

func TestWhatAServerAnswers(t *testing.T) {
	good := part(image, 0, 36, `"v1"`)
	with := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for name, c := range map[string]struct {
		answer string
		kind   transport.Kind // Unknown: success
		retry  bool
	}{
		"good":                    {good, transport.Unknown, true},
		"interim answers":         {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + good, 0, true},
		"a long header":           {with("ETag", "X: "+strings.Repeat("x", 5000)+"\r\nETag"), 0, true},
		"a long ETag":             {with(`"v1"`, `"`+strings.Repeat("x", 5000)+`"`), 0, true},
		"a weak ETag":             {with(`"v1"`, `W/"v1"`), 0, true},
		"no reason":               {with(" Partial Content", ""), 0, true},
		"bare line feeds":         {strings.ReplaceAll(good, "\r\n", "\n"), 0, true},
		"the whole image":         {"HTTP/1.1 200 OK\r\nContent-Length: 36\r\n\r\n" + image, transport.Unsupported, false},
		"not found":               {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", transport.NotFound, false},
		"busy":                    {"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\n\r\n", transport.Unavailable, true},
		"a redirect":              {"HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n", transport.Protocol, false},
		"shorter":                 {"HTTP/1.1 416 Range\r\nContent-Range: bytes */5\r\n\r\n", transport.Conflict, false},
		"replaced":                {"HTTP/1.1 412 Precondition Failed\r\n\r\n", transport.Conflict, false},
		"chunks":                  {with("ETag", "Transfer-Encoding: chunked\r\nETag"), transport.Protocol, true},
		"an encoding":             {with("ETag", "Content-Encoding: gzip\r\nETag"), transport.Protocol, true},
		"the encoding identity":   {with("ETag", "Content-Encoding: identity\r\nETag"), 0, true},
		"another part":            {part(image, 1, 36, `"v1"`), transport.Protocol, true},
		"no range":                {with("Content-Range", "X"), transport.Protocol, true},
		"no length":               {with("Content-Length", "X"), transport.Protocol, true},
		"a wrong length":          {with("Content-Length: 36", "Content-Length: 35"), transport.Protocol, true},
		"two lengths":             {with("ETag", "Content-Length: 35\r\nETag"), transport.Protocol, true},
		"a negative length":       {with("Length: 36", "Length: -36"), transport.Protocol, true},
		"a huge length":           {with("Length: 36", "Length: 99999999999999999999"), transport.Protocol, true},
		"a backward range":        {with("0-35/36", "35-0/36"), transport.Protocol, true},
		"a range beyond the end":  {with("0-35/36", "0-35/30"), transport.Protocol, true},
		"no header":               {with("ETag: ", "ETag "), transport.Protocol, true},
		"a folded header":         {with("ETag: ", " ETag: "), transport.Protocol, true},
		"no HTTP":                 {"SSH-2.0-OpenSSH\r\n", transport.Protocol, true},
		"HTTP/1.0":                {with("HTTP/1.1", "HTTP/1.0"), transport.Protocol, true},
		"a status of 4 digits":    {with("206", "2060"), transport.Protocol, true},
		"endless interim answers": {strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 10), transport.Protocol, true},
		"endless headers":         {"HTTP/1.1 206 OK\r\n" + strings.Repeat("X: y\r\n", 5000), transport.Protocol, true},
		"an endless line":         {"HTTP/1.1 206 OK\r\nX: " + strings.Repeat("y", 30000), transport.Protocol, true},
		"silence":                 {"HTTP/1.1 206 OK\r\n", transport.Timeout, true},
		"hung up":                 {"HTTP/1.1 206 OK\r\nCLOSE", transport.Network, true},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			server := &script{answers: []string{c.answer}}
			s := newSource(t, server.dial)
			p := make([]byte, 36)
			err := s.ReadAt(t.Context(), p, 0)
			require.Equal(t, c.kind, transport.KindOf(err), "%v", err)
			if err == nil {
				require.Equal(t, image, string(p))
			} else {
				require.Equal(t, c.retry, errfilter.Retryable(new(errfilter.Damage).Judge(err)), "%v", err)
				require.NotContains(t, err.Error(), "secret")
			}
			if name == "busy" {
				require.Equal(t, 7*time.Second, transport.Find(err).RetryAfter)
			}
			require.NoError(t, s.Close())
		})
	}
}

// A part of a byte for each request would cost a request for each byte, without a pause.
func TestAnAnswerOfAFewBytesIsRefused(t *testing.T) {
	const image = 5000
	for length, ok := range map[int]bool{1: false, 1023: false, 1024: true, image: true} {
		near, far := memconn.Pair("board", "server")
		requests := 0
		go func() {
			defer far.Close()
			for off := 0; off < image; off += length {
				if _, err := http.ReadRequest(bufio.NewReader(far)); err != nil {
					return
				}
				requests++
				n := min(length, image-off)
				_, _ = fmt.Fprintf(far, "HTTP/1.1 206 OK\r\nContent-Length: %d\r\nContent-Range: bytes %d-%d/%d\r\n\r\n%s",
					n, off, off+n-1, image, strings.Repeat("x", n))
			}
		}()
		s, err := New(func(context.Context) (Conn, error) { return near, nil }, &Options{Host: "h", Path: "/"})
		require.NoError(t, err)
		err = s.ReadAt(t.Context(), make([]byte, image), 0)
		require.NoError(t, s.Close())
		if ok {
			require.NoError(t, err, length)
			continue
		}
		require.ErrorIs(t, err, transport.ErrMaybeDamaged, length)
		require.Equal(t, 1, requests)
	}
}

func TestAReplacedImageIsNoticed(t *testing.T) {
	for name, second := range map[string]string{
		"another ETag":        part(image, 8, 36, `"v2"`),
		"no ETag":             part(image, 8, 36, ``),
		"another size":        part(image+"more", 8, 40, `"v1"`),
		"the whole new image": "HTTP/1.1 200 OK\r\nContent-Length: 36\r\nETag: \"v2\"\r\n\r\n" + image,
		"precondition failed": "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n",
	} {
		testkit.Run(t, name, func(t *testing.T) {
			server := &script{answers: []string{part(image, 0, 36, `"v1"`), second}}
			s := newSource(t, server.dial)
			p := make([]byte, 8)
			require.NoError(t, s.ReadAt(t.Context(), p, 0))
			require.NoError(t, s.Close())
			require.ErrorIs(t, s.ReadAt(t.Context(), p, 8), update.ErrChanged)
			require.NoError(t, s.Close())
		})
	}
}

// A page of a portal, or a server that ignores Range, is no new image: its manifest stays right.
func TestAWholeAnswerIsNotTakenForAReplacedImage(t *testing.T) {
	for name, header := range map[string]string{"a page": "Content-Type: text/html\r\n", "no ranges": "ETag: \"v1\"\r\n"} {
		testkit.Run(t, name, func(t *testing.T) {
			server := &script{answers: []string{part(image, 0, 36, `"v1"`),
				"HTTP/1.1 200 OK\r\nContent-Length: 36\r\n" + header + "\r\n" + image}}
			s := newSource(t, server.dial)
			p := make([]byte, 8)
			require.NoError(t, s.ReadAt(t.Context(), p, 0))
			require.NoError(t, s.Close())
			err := s.ReadAt(t.Context(), p, 8)
			require.ErrorIs(t, err, transport.Unsupported)
			require.ErrorContains(t, err, "captive portal")
			require.NoError(t, s.Close())
		})
	}
}

func TestTheContextEndsARead(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := newSource(t, (&script{}).dial)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begin := time.Now()
		require.ErrorIs(t, s.ReadAt(ctx, make([]byte, 1), 0), context.DeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(begin))
		begin = time.Now()
		require.ErrorIs(t, s.ReadAt(t.Context(), make([]byte, 1), 0), transport.Timeout)
		require.Equal(t, 30*time.Second, time.Since(begin))
		require.ErrorIs(t, s.ReadAt(ctx, make([]byte, 1), 0), context.DeadlineExceeded)
	})
}

// A server that accepts a connection and is silent in the TLS handshake, which is part of the dial
// or of the first Write.
func TestAServerThatIsSilentInTheHandshakeIsLost(t *testing.T) {
	far := make(chan net.Conn, 1)
	for name, dial := range map[string]Dial{
		"in Write": func(context.Context) (Conn, error) {
			near, other := memconn.Pair("board", "server")
			far <- other
			return tls.Client(near, &tls.Config{ServerName: "files.example.com"}), nil
		},
		"in the dial": func(ctx context.Context) (Conn, error) {
			near, other := memconn.Pair("board", "server")
			far <- other
			c := tls.Client(near, &tls.Config{ServerName: "files.example.com"})
			return c, c.HandshakeContext(ctx)
		},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			s := newSource(t, dial)
			began := time.Now()
			err := s.ReadAt(t.Context(), make([]byte, 1), 0)
			require.ErrorIs(t, err, transport.Timeout)
			want := map[string]string{"in Write": "the server sent nothing within Options.Timeout",
				"in the dial": "no connection within Options.Timeout"}
			require.ErrorContains(t, err, want[name])
			require.True(t, errfilter.Retryable(err))
			require.Equal(t, 30*time.Second, time.Since(began))
			require.NoError(t, (<-far).Close())

			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			require.ErrorIs(t, s.ReadAt(ctx, make([]byte, 1), 0), context.DeadlineExceeded)
			require.NoError(t, (<-far).Close())
		})
	}
}

// leaky is a connection whose errors show a secret.
type leaky struct {
	Conn
	write, deadline, read error
}

func (l leaky) Write(p []byte) (int, error)     { return len(p), l.write }
func (l leaky) SetReadDeadline(time.Time) error { return l.deadline }
func (l leaky) Read([]byte) (int, error)        { return 0, l.read }
func (l leaky) Close() error                    { return nil }

func TestErrorsOfAConnectionShowNoSecrets(t *testing.T) {
	leak := errors.New("modem: sig=abc1")
	kind := &transport.Error{Kind: transport.Network, Err: leak}
	for name, s := range map[string]struct {
		conn leaky
		err  error
	}{
		"dial": {err: leak}, "dial with a kind": {err: kind}, "write": {conn: leaky{write: leak}},
		"deadline": {conn: leaky{deadline: leak}}, "read": {conn: leaky{read: kind}},
	} {
		source := newSource(t, func(context.Context) (Conn, error) { return s.conn, s.err })
		err := source.ReadAt(t.Context(), make([]byte, 1), 0)
		require.ErrorIs(t, err, leak, name)
		require.ErrorIs(t, err, transport.Network, name)
		require.NotContains(t, err.Error(), "abc1", name)
	}
}

func TestWrongOptionsAreNamed(t *testing.T) {
	dial := (&script{}).dial
	for text, o := range map[string]*Options{
		"Options.Host":    nil,
		"no host name":    {Host: "a/b", Path: "/"},
		"or no host":      {Host: "a\r\nX: y", Path: "/"},
		"Options.Path":    {Host: "a", Path: "x"},
		"escape":          {Host: "a", Path: "/a b"},
		"2048":            {Host: "a", Path: "/" + strings.Repeat("x", 2048)},
		"Options.Timeout": {Host: "a", Path: "/", Timeout: -1},
	} {
		_, err := New(dial, o)
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, text)
	}
	_, err := New(nil, &Options{Host: "a", Path: "/"})
	require.ErrorContains(t, err, "dial is nil")
	s := newSource(t, func(context.Context) (Conn, error) { return nil, errors.New("no route") })
	require.ErrorIs(t, s.ReadAt(t.Context(), make([]byte, 1), 0), transport.Network)
	s = newSource(t, func(context.Context) (Conn, error) { panic("modem") })
	require.ErrorContains(t, s.ReadAt(t.Context(), make([]byte, 1), 0), "modem")
	s = newSource(t, func(context.Context) (Conn, error) { return nil, (*os.PathError)(nil) })
	require.ErrorContains(t, s.ReadAt(t.Context(), make([]byte, 1), 0), "an error whose Error method panics")
	s = newSource(t, func(context.Context) (Conn, error) { return nil, nil })
	err = s.ReadAt(t.Context(), make([]byte, 1), 0)
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "the dial function of httprange.New returned no connection")
}

// useless is a connection whose methods panic, as those of a nil pointer do.
type useless struct{ Conn }

func TestAConnectionThatPanicsLeavesNoTimer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, err := New(func(context.Context) (Conn, error) { return useless{}, nil }, &Options{Host: "a", Path: "/"})
		require.NoError(t, err)
		require.Panics(t, func() { _ = s.ReadAt(t.Context(), make([]byte, 1), 0) })
		time.Sleep(time.Hour)
	})
}

// The storage of the hub, with faults.
func TestAnImageInStorage(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hub, err := testbroker.New(nil)
		require.NoError(t, err)
		defer hub.Close()
		container, err := hub.ContainerURL("storage.example.com", "images", time.Hour)
		require.NoError(t, err)
		content := make([]byte, 100_000)
		for i := range content {
			content[i] = byte(rand.Uint32())
		}
		base, query, _ := strings.Cut(container, "?")
		_, path, _ := strings.Cut(strings.TrimPrefix(base, "https://"), "/")
		path = "/" + path + "/7.bin?" + query
		put(t, hub, path, content)

		dial := func(ctx context.Context) (Conn, error) { return hub.Dial(testbroker.PortHTTP)(ctx, "tcp", "") }
		s, err := New(dial, &Options{Host: "storage.example.com", Path: path})
		require.NoError(t, err)
		p := make([]byte, 1000)
		require.NoError(t, s.ReadAt(t.Context(), p, 50_000))
		require.Equal(t, content[50_000:51_000], p)
		s.hangUp()
		hub.Inject(fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteStorage, Statuses: []int{503}})
		require.ErrorIs(t, s.ReadAt(t.Context(), p, 51_000), transport.Unavailable)
		require.NoError(t, s.ReadAt(t.Context(), p, 51_000))
		require.Equal(t, content[51_000:52_000], p)
		put(t, hub, path, content[1:])
		s.hangUp()
		require.ErrorIs(t, s.ReadAt(t.Context(), p, 52_000), update.ErrChanged)
	})
}

// put stores a file.
func put(t *testing.T, hub *testbroker.Hub, path string, content []byte) {
	t.Helper()
	conn, err := hub.Dial(testbroker.PortHTTP)(t.Context(), "tcp", "")
	require.NoError(t, err)
	defer conn.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://storage.example.com"+path,
		bytes.NewReader(content))
	require.NoError(t, err)
	q.Header.Set("x-ms-blob-type", "BlockBlob")
	a, err := client.Do(q)
	require.NoError(t, err)
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, a.StatusCode, "%s", body)
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(part(image, 0, 36, `"v1"`)))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 416 Range\r\nContent-Range: bytes */5\r\nRetry-After: 7\r\n\r\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		s, err := New(func(context.Context) (Conn, error) { return &canned{bytes.NewReader(answer)}, nil },
			&Options{Host: "a", Path: "/x?sig=secret"})
		require.NoError(t, err)
		p := make([]byte, 36)
		if err := s.ReadAt(t.Context(), p, 0); err != nil {
			require.NotNil(t, transport.Find(err), "%v", err)
			require.NotContains(t, err.Error(), "secret")
			return
		}
		require.Contains(t, string(answer), string(p))
	})
}

// canned is a connection that receives given bytes.
type canned struct{ *bytes.Reader }

func (*canned) Write(p []byte) (int, error)     { return len(p), nil }
func (*canned) Close() error                    { return nil }
func (*canned) SetReadDeadline(time.Time) error { return nil }

// A server that sends a byte now and then, of the head or of the image, would hold a download for
// years.
func TestAServerBelowAFloorOfProgressIsLost(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for name, at := range map[string]int{"in the head": 5, "in the image": 200} {
		testkit.Run(t, name, func(t *testing.T) {
			answer := part(large, 0, len(large), `"v1"`)
			s := newSource(t, func(context.Context) (Conn, error) {
				near, far := memconn.Pair("board", "server")
				go func() {
					_, _ = far.Read(make([]byte, 4096))
					_, err := io.WriteString(far, answer[:at])
					for i := at; err == nil; i++ {
						time.Sleep(29 * time.Second)
						_, err = io.WriteString(far, answer[i:i+1])
					}
					_ = far.Close()
				}()
				return near, nil
			})
			began := time.Now()
			err := s.ReadAt(t.Context(), make([]byte, 4096), 0)
			require.ErrorIs(t, err, transport.Timeout)
			require.ErrorContains(t, err, "less than 1 KB in 2 minutes")
			require.LessOrEqual(t, time.Since(began), 3*time.Minute)
			time.Sleep(time.Minute) // the server ends
		})
	}
}
