package amqp

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// sessionCount counts the sessions of AMQP on a connection, so that there are never more than the
// peer allows. Asked for one more, the library closes the connection, for all, or does not even
// come to that: it waits for its reader under a lock that the reader needs (go-amqp 1.7,
// Conn.newSession). A session counts from before its begin until the library has read the peer's
// end, though nobody may know it any more.
type sessionCount struct {
	mu    sync.Mutex // guards what follows; held for memory only
	used  int
	freed chan struct{} // closed when there are less; nil unless somebody waits for that
}

// freeLimit is how long a session waits for the end of another one. Devices are only as many as
// there are sessions for, so what takes the place is on its way out.
const freeLimit = 5 * time.Second

// take counts one more, of most at most, when there is room. ended is the connection's.
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
				" sessions of AMQP on a connection (channel-max), and has not ended those that were given up")}
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return errClosed // the connection knows why
		}
	}
}

// give takes k off.
func (n *sessionCount) give(k int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.used -= k
	if n.freed != nil {
		close(n.freed)
		n.freed = nil
	}
}
