package engine

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

var (
	_ transport.Session    = (*session)(nil)
	_ transport.Progressor = (*session)(nil)
)

// A session is one connection.
//
// Run's goroutine reads and never writes, so it always notices a dead connection; by closing it,
// Run unblocks a stuck writer. Send and Do write on their caller's goroutine, with the write side's
// token. disconnect and the end of Run keep the token, so nothing is written, and no message
// touched, afterwards. The Sink may be called with the token held: no Sink waits for anything that
// needs it.
type session struct {
	t       *Transport
	conn    Conn
	sink    transport.Sink
	info    transport.Info
	dialect dialect.Session
	// progress is transport.Config.Progress, and timeout its DialTimeout.
	progress func()
	timeout  time.Duration

	backlog      mqttwire.Backlog
	receiving    mqttwire.Receiving
	writing      chan struct{} // capacity 1; holding the write side's token means having put a value into it
	disconnected chan struct{} // closed when disconnect has ended

	// Owned by the reading goroutine: Dial's, then Run's.
	unread      int           // bytes in the read buffer that are not handled yet
	handled     int           // during the handshake: those of them that are
	over        bool          // end was called
	skip        int           // bytes still to read of a packet that is too large
	filled      bool          // the latest read filled the read buffer
	deadlineSet time.Time     // when the read deadline was last moved
	deadline    time.Time     // to which time; a slow write moves it, too
	excused     bool          // there was more time for the answer to a ping, see mayAnswer
	connackAt   time.Time     // when CONNACK came
	waited      time.Duration // how long the packets that are handled may have waited in the read buffer

	// Owned by the holder of the write side's token.
	lastID     uint16
	writeBegan time.Time        // start of the present Send or Do, or its latest progress
	lent       *[fastChunk]byte // the write buffer of a Send on a fast link; nil if it is its own
	own        []byte           // the other write buffer meanwhile

	mu            sync.Mutex  // guards the fields below; never held during I/O
	writeProgress time.Time   // latest progress of a slow write
	err           error       // the first failure
	closed        bool        // the connection is closed
	reason        *time.Timer // closes the connection; nil unless a write has failed
	unacked       int         // messages with QoS 1 that are not acknowledged
	unackedBytes  int         // of all written since the last moment without one, up to MaxMessageSize
	// handshakeUnacked: the message of the handshake was written and not acknowledged.
	handshakeUnacked bool
	subs             [maxSubs]subscription
}

func newSession(t *Transport, cfg *transport.Config, token transport.Token, d dialect.Session, c Conn) *session {
	s := &session{
		t: t, conn: c, sink: cfg.Sink, dialect: d, progress: cfg.Progress, timeout: cfg.DialTimeout,
		writing: make(chan struct{}, 1), disconnected: make(chan struct{}), lastID: transport.MaxTags,
	}
	s.backlog.Sink, s.backlog.Pass, s.backlog.Limit = cfg.Sink, s.passMessage, mqttwire.MaxBacklog
	if n := t.opt.ReadBuffer; n > 0 {
		s.backlog.Limit = n
	}
	s.backlog.Hold()
	clear(t.unacked)
	s.info = transport.Info{MaxSize: transport.MaxMessageSize, Encodes: true,
		KeepAlive: cmp.Or(t.opt.KeepAlive, defaultKeepAlive)}
	if !token.Fixed {
		s.info.Expires = token.Expires
	}
	if e, ok := c.(Expirer); ok && s.info.Expires.IsZero() {
		s.info.Expires = e.Expires()
	}
	return s
}

// readTimeout is how long the hub may send nothing.
func (s *session) readTimeout() time.Duration { return s.info.KeepAlive + s.t.opt.PingTimeout }

// Info returns the size limit, the ping interval and the expiry of the credentials.
func (s *session) Info() transport.Info { return s.info }

// Progress implements transport.Progressor. It returns the connection's progress, if the connection
// reports it, or else the latest progress of a slow write. Bytes of large packets from the peer are
// progress, too.
func (s *session) Progress() (at time.Time, waits bool) {
	if p, ok := s.conn.(transport.Progressor); ok {
		at, waits = p.Progress()
	} else {
		s.mu.Lock()
		at = s.writeProgress
		s.mu.Unlock()
	}
	return s.receiving.Progress(at), waits
}

// Run reads until the connection ends or ctx does. Its frame is small: with what follows the reads
// in it, the goroutine of an idle client needs 4 KB of stack instead of 2.
func (s *session) Run(ctx context.Context) error {
	stop := lifetime.AfterFunc(ctx, s.disconnect) // ends by closing disconnected
	if callback.Recovers {
		defer func() {
			if !s.over { // a callback panicked
				_, _ = s.end(errAborted, stop)
			}
		}()
	}
	return s.loss(ctx, s.read(), stop)
}

// loss ends the session for last, and returns the result of Run.
func (s *session) loss(ctx context.Context, last error, stop func() bool) error {
	s.sayGoodbye(last)
	err, why := s.end(last, stop)
	switch ended := ctx.Err(); {
	case ended != nil:
		return mqttwire.Loss(transport.Network, ended)
	case why != nil:
		return why
	case mqttwire.TimedOut(err) || errors.Is(err, mqttwire.ErrNoPong) || errors.Is(err, errNoPuback):
		return mqttwire.Loss(transport.Timeout, err)
	}
	return mqttwire.Loss(transport.Network, err)
}

// end closes the connection for last and joins what still uses it. It returns why the connection
// ended; why is the peer's reason, if it gave one.
func (s *session) end(last error, stop func() bool) (err, why error) {
	s.over = true
	s.fail(last)
	if stop() {
		s.writing <- struct{}{} // never given back; the connection is closed, so its holder leaves soon
	} else {
		<-s.disconnected
	}
	err = s.failure()
	if transport.Find(last) != nil { // the peer's DISCONNECT goes before a failure to write
		err = last
	}
	if v := s.t.newer; v != nil {
		why = v.end(err)
	}
	s.t.busy.Store(false)
	return err, why
}

// disconnectLimit bounds disconnect.
const disconnectLimit = 600 * time.Millisecond

// disconnect sends DISCONNECT and closes. It runs on its own goroutine when Run's context ends.
func (s *session) disconnect() {
	fired := make(chan struct{})
	limit := time.AfterFunc(disconnectLimit, func() { // unblocks a stuck write
		s.fail(errAborted)
		close(fired)
	})
	s.writing <- struct{}{} // never given back
	var buf [2]byte
	if s.failure() == nil { // otherwise it would stand behind a part of a packet
		_, _ = s.conn.Write(mqttwire.AppendDisconnect(buf[:0]))
	}
	if !limit.Stop() {
		<-fired
	}
	s.fail(errClosed)
	close(s.disconnected)
}

// sayGoodbye sends DISCONNECT on a connection that this side ends for err, if the peer is to know.
func (s *session) sayGoodbye(err error) {
	packet := s.goodbye(err)
	if packet == nil {
		return
	}
	late := make(chan struct{})
	limit := time.AfterFunc(disconnectLimit, func() { // unblocks a stuck write
		s.fail(err)
		close(late)
	})
	select {
	case s.writing <- struct{}{}:
		if s.failure() == nil { // as in disconnect
			_, _ = s.conn.Write(packet)
		}
		s.fail(err) // nothing may stand behind it
		<-s.writing
	case <-late:
	}
	if !limit.Stop() {
		<-late
	}
}

// goodbye returns the DISCONNECT for err; nil for none. Without it the peer would publish the will.
func (s *session) goodbye(err error) []byte {
	if v := s.t.newer; v != nil {
		return v.goodbye(s, err)
	}
	if errors.Is(err, mqttwire.ErrBehind) {
		return mqttwire.AppendDisconnect(nil)
	}
	return nil
}

// fail records the first failure and closes the connection, which unblocks reads and writes.
func (s *session) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	first := !s.closed
	s.closed = true
	if s.reason != nil {
		s.reason.Stop()
	}
	s.mu.Unlock()
	if first {
		_ = s.conn.Close()
	}
}

// failWrite records the failure of a write. Unless the peer just takes no data, the connection
// stays open for reasonTime: the peer may have sent why it closed it.
func (s *session) failWrite(err error) {
	if mqttwire.TimedOut(err) {
		s.fail(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil { // otherwise the connection is closed, or will be
		s.err = err
		s.reason = time.AfterFunc(reasonTime, func() { s.fail(err) })
	}
}

// failure returns the first failure, nil as long as there is none.
func (s *session) failure() error {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	return err
}
