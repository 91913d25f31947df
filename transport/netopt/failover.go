package netopt

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// failoverLimit bounds the attempt on one address, so that a host that answers nothing does not use
// up the time of the others.
const failoverLimit = 5 * time.Second

// Failover returns a function for Options.Dial that connects to one of several "host:port"
// addresses, such as the nodes of a cluster. The first dial begins with an address chosen at
// random, so that a fleet spreads over the nodes. Each later dial begins with the address after the
// last one that connected: a node that accepts connections but fails above TCP is left at the next
// dial. Within one dial each address is tried once, for at most 5 s, and for a fair share of the
// time that ctx leaves.
//
// dial makes the connections; nil is Direct. For a proxy, give the proxy's function here
// rather than Options.Proxy. The address that the transport passes is ignored, so Options.Addr has
// no effect. Every node's certificate must be valid for Credentials.DialHost, or for the ServerName
// of Options.TLS. An address that is not host:port makes each dial fail with Kind Invalid. When all
// addresses fail, the error wraps the error of each. If their Kinds differ, its own is Network: an
// address that refuses for good, as a proxy may, does not end a client that another one may take.
// The function is safe for concurrent use; clients that share it share the rotation.
func Failover(dial DialFunc, addrs ...string) DialFunc {
	if dial == nil {
		dial = Direct
	}
	f := &failover{dial: dial, addrs: addrs, invalid: checkAddrs(addrs)}
	if len(addrs) > 0 {
		f.next.Store(rand.Uint32N(uint32(len(addrs))))
	}
	return f.connect
}

type failover struct {
	dial    DialFunc
	addrs   []string
	invalid error
	next    atomic.Uint32 // index of the first address of the next dial
}

func checkAddrs(addrs []string) error {
	bad := func(text string) error {
		return &transport.Error{Kind: transport.Invalid, Err: errors.New("failover: " + text)}
	}
	if len(addrs) == 0 {
		return bad("no addresses; give at least one, such as \"node1:8883\"")
	}
	for _, a := range addrs {
		host, port, err := net.SplitHostPort(a)
		if n, numErr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || numErr != nil || n == 0 {
			return bad("address " + strconv.Quote(a) + " is not host:port; give both, such as \"node1:8883\"")
		}
	}
	return nil
}

func (f *failover) connect(ctx context.Context, network, _ string) (net.Conn, error) {
	if f.invalid != nil {
		return nil, f.invalid
	}
	n := len(f.addrs)
	first := int(f.next.Load())
	var failed failures
	for i := range n {
		at := (first + i) % n
		c, err := f.try(ctx, network, f.addrs[at], n-i)
		if err == nil {
			f.next.Store(uint32((at + 1) % n))
			return c, nil
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	for _, err := range failed {
		if transport.KindOf(err) != transport.KindOf(failed[0]) {
			return nil, &transport.Error{Kind: transport.Network, Err: failed}
		}
	}
	return nil, failed
}

// try connects to one address while left addresses, this one included, remain to be tried.
func (f *failover) try(ctx context.Context, network, addr string, left int) (net.Conn, error) {
	limit := failoverLimit
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/time.Duration(left))
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f.dial(ctx, network, addr)
}

// failures are the errors of all addresses, in the order of the attempts.
type failures []error

func (f failures) Error() string {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = err.Error()
	}
	return "no address connected: " + strings.Join(texts, "; ")
}

func (f failures) Unwrap() []error { return f }
