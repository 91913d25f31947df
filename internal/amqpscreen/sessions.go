package amqpscreen

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// sessionCount counts the AMQP sessions of a connection and keeps their number within the peer's
// limit. Above the limit the library would close the connection, or deadlock: it waits for its
// reader under a lock that the reader needs (go-amqp 1.7, Conn.newSession). A session counts from
// before its begin until the library has read the peer's end.
type sessionCount struct {
	mu    sync.Mutex // guards the fields below; never held during I/O
	used  int
	freed chan struct{} // closed when the count falls; nil: no waiters
}

// freeLimit is how long a session waits for the end of another one. The peer allows enough sessions
// for all devices, so one of them is about to end.
const freeLimit = 5 * time.Second

// acquire waits until the count is below most, and increments it. ended is that of the connection.
func (n *sessionCount) acquire(ctx context.Context, most int, ended <-chan struct{}) error {
	limit := time.NewTimer(freeLimit)
	defer limit.Stop()
	for {
		n.mu.Lock()
		free := n.used < most
		if free {
			n.used++
		} else if n.freed == nil {
			n.freed = make(chan struct{})
		}
		freed := n.freed
		n.mu.Unlock()
		if free {
			return nil
		}
		select {
		case <-freed:
		case <-limit.C:
			return &transport.Error{Kind: transport.Quota, Err: errors.New("the peer allows " + strconv.Itoa(most) +
				" AMQP sessions on a connection (channel-max), and has not answered the end of former ones")}
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return ErrClosed // the connection has the cause
		}
	}
}

// release decrements the count by k.
func (n *sessionCount) release(k int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.used -= k
	if n.freed != nil {
		close(n.freed)
		n.freed = nil
	}
}
