package http

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/hubhttp"
)

// requester makes one request at a time, over a connection that it opens when a request needs it.
// One goroutine uses it.
type requester struct {
	s     *session
	mu    sync.Mutex // guards conn against abort
	conn  *hubhttp.Conn
	watch watch

	// idle fires after the connection was unused for IdleTimeout; nil before the first exchange.
	idle *time.Timer
}

func newRequester(s *session) requester { return requester{s: s, watch: watch{s: s}} }

// open returns the connection, and opens one if necessary.
func (l *requester) open(ctx context.Context) (*hubhttp.Conn, error) {
	if l.conn != nil {
		select {
		case <-l.conn.Gone():
			if err := l.discard(); err != nil {
				return nil, err
			}
		default:
			return l.conn, nil
		}
	}
	fresh, err := l.s.opt.connect(ctx, l.s.cfg.Creds)
	if err != nil {
		return nil, err
	}
	l.set(fresh)
	return fresh, nil
}

func (l *requester) set(fresh *hubhttp.Conn) {
	l.mu.Lock()
	l.conn = fresh
	l.mu.Unlock()
}

// gone returns a channel that is closed when the hub has closed the connection.
func (l *requester) gone() <-chan struct{} {
	if l.conn == nil {
		return nil
	}
	return l.conn.Gone()
}

// unused returns a channel that fires when the connection was idle for IdleTimeout.
func (l *requester) unused() <-chan time.Time {
	if l.conn == nil || l.idle == nil {
		return nil
	}
	return l.idle.C
}

func newRequest(method string, at *url.URL, header http.Header, body []byte) *hubhttp.Request {
	return &hubhttp.Request{Method: method, URL: at, Header: header, Body: body}
}

// exchange makes one request within its time limit. If the hub closed the idle connection just as
// the request went, exchange makes it once more, over another connection: each request may be
// repeated. Telemetry would be sent again by the next session too, a poll reads, and a settlement
// under a lock takes effect once.
func (l *requester) exchange(ctx context.Context, r *hubhttp.Request) (*hubhttp.Answer, error) {
	header := r.Header.Clone()
	a, stale, err := l.exchangeOnce(ctx, r)
	if stale {
		r.Header = header
		a, _, err = l.exchangeOnce(ctx, r)
	}
	return a, err
}

// exchangeOnce is exchange without the second request. stale is hubhttp.Conn.Stale of a connection
// that failed.
func (l *requester) exchangeOnce(ctx context.Context, r *hubhttp.Request) (a *hubhttp.Answer, stale bool, err error) {
	began, limit := time.Now(), l.s.opt.requestTimeout(len(r.Body))
	ctx, cancel := context.WithTimeout(ctx, limit+answerTime)
	defer cancel()
	if l.idle != nil {
		l.idle.Stop()
	}
	conn, err := l.open(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, false, err
	}
	sent := time.Now()
	l.watch.begin(ctx, cancel, conn, limit-sent.Sub(began), limit-l.s.opt.Timeout)
	a, err = conn.Exchange(ctx, r)
	ended := ctx.Err() != nil
	if late := l.watch.end(); late != nil && err != nil {
		err = late
	}
	if err != nil {
		l.close()
		return a, !ended && conn.Stale(), err
	}
	l.s.clock.Learn(a.Header, a.TLS, sent, time.Now())
	if l.idle == nil {
		l.idle = time.NewTimer(l.s.opt.IdleTimeout)
	} else {
		l.idle.Reset(l.s.opt.IdleTimeout)
	}
	return a, false, nil
}

// discard discards a closed connection. It returns the reason, or nil if the hub closed it cleanly.
func (l *requester) discard() error {
	err := l.conn.Loss()
	l.close()
	if err == io.EOF { //nolint:errorlint // a wrapped one is a cut
		return nil
	}
	return err
}

// close closes the connection and waits until no goroutine uses its socket.
func (l *requester) close() {
	if l.conn == nil {
		return
	}
	l.conn.Close()
	l.set(nil)
}

// abort closes the socket, even while it is in use. Any goroutine may call it.
func (l *requester) abort() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.Abort()
	}
}
