package amqp

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// sessionCount counts the AMQP sessions of a connection, so that there are never more than the peer
// allows. If there were, the library would close the connection, or deadlock: it waits for its
// reader under a lock that the reader needs (go-amqp 1.7, Conn.newSession). A session counts from
// before its begin until the library has read the peer's end.
type sessionCount struct {
	mu    sync.Mutex // guards what follows; held for memory only
	used  int
	freed chan struct{} // closed when there are less; nil: nobody waits
}

// freeLimit is how long a session waits for the end of another one. There are sessions enough for
// all devices, so one of them is about to end.
const freeLimit = 5 * time.Second

// take waits until there are less than most, and counts one more. ended is the connection's.
func (n *sessionCount) take(ctx context.Context, most int, ended <-chan struct{}) error {
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
			return errClosed // the connection has the cause
		}
	}
}

// give counts k less.
func (n *sessionCount) give(k int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.used -= k
	if n.freed != nil {
		close(n.freed)
		n.freed = nil
	}
}
