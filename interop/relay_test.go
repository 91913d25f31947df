package interop

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// relay is the network between a client and a broker, controlled by a test.
type relay struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	lines map[*line]struct{}
	made  int
	shut  bool
}

// line is one connection through the relay.
type line struct {
	client, server *net.TCPConn
	silent         atomic.Bool // drops all data, in both directions
}

func newRelay(t testing.TB, target string) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{target: target, listener: l, lines: make(map[*line]struct{})}
	r.wg.Go(r.accept)
	t.Cleanup(func() {
		r.mu.Lock()
		r.shut = true
		r.mu.Unlock()
		_ = l.Close()
		r.cut()
		r.wg.Wait()
	})
	return r
}

func (r *relay) addr() string { return r.listener.Addr().String() }

// accept runs until the listener is closed.
func (r *relay) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = c.Close()
			continue
		}
		ln := &line{client: c.(*net.TCPConn), server: s.(*net.TCPConn)}
		r.mu.Lock()
		if r.shut {
			ln.reset()
		}
		r.lines[ln] = struct{}{}
		r.made++
		r.mu.Unlock()
		r.wg.Go(func() { r.pump(ln, ln.client, ln.server) })
		r.wg.Go(func() { r.pump(ln, ln.server, ln.client) })
	}
}

// pump runs until the connection that it reads from ends.
func (r *relay) pump(ln *line, from, to *net.TCPConn) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if !ln.silent.Load() && n > 0 {
			_, _ = to.Write(buf[:n])
		}
		if err == nil {
			continue
		}
		_ = from.Close()
		if !ln.silent.Load() {
			_ = to.Close() // a silent line drops even the close
		}
		return
	}
}

func (ln *line) reset() {
	for _, c := range []*net.TCPConn{ln.client, ln.server} {
		_ = c.SetLinger(0) // RST
		_ = c.Close()
	}
}

// cut resets all current connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ln := range r.lines {
		ln.reset()
		delete(r.lines, ln)
	}
}

// silence makes all current connections half-open.
func (r *relay) silence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ln := range r.lines {
		ln.silent.Store(true)
	}
}

// connections returns the number of connections made so far.
func (r *relay) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made
}

// recorder keeps the data read through it.
type recorder struct {
	mu  sync.Mutex
	all []byte
}

func (r *recorder) bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]byte(nil), r.all...)
}

type recording struct {
	net.Conn
	to *recorder
}

func (c recording) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.to.mu.Lock()
	c.to.all = append(c.to.all, p[:n]...)
	c.to.mu.Unlock()
	return n, err
}
