package netopt

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"
)

const (
	// attemptDelay is how long an address may leave an attempt unanswered before the next address is
	// tried beside it [RFC 8305, 8].
	attemptDelay = 250 * time.Millisecond
	// maxAddresses bounds the attempts of one dial, whatever the name server answers.
	maxAddresses = 16
)

// Direct connects without a proxy. It is the default of Options.Dial, for functions that add
// something to it.
//
// A name may have several addresses. Direct tries the next one when the previous attempt failed, or
// after 250 ms without an answer; IPv6 and IPv4 alternate (RFC 8305). So an address that answers
// nothing costs a quarter of a second. The first connection wins, and the other attempts end before
// Direct returns. It tries 16 addresses at most. When all fail, the error wraps the error of each.
func Direct(ctx context.Context, network, addr string) (net.Conn, error) {
	return direct.connect(ctx, network, addr)
}

// direct is shared by all connections: a net.Dialer each would take 160 bytes.
var direct = staggered{new(net.Dialer).DialContext, net.DefaultResolver.LookupNetIP}

// staggered tries the addresses of a name.
type staggered struct {
	dial   DialFunc
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

func (s staggered) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || network != "tcp" {
		return s.dial(ctx, network, addr)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return s.dial(ctx, network, addr)
	}
	ips, err := s.lookup(ctx, "ip", host)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	addrs := alternate(ips, port)
	switch len(addrs) {
	case 0:
		return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no addresses", Name: host}}
	case 1:
		return s.dial(ctx, network, addrs[0])
	}
	return s.race(ctx, network, addrs)
}

// alternate returns the addresses to try: each once, in the resolver's order, but a family does not
// follow itself while the other one has more.
func alternate(ips []netip.Addr, port string) []string {
	var families [2][]netip.Addr // that of the first address, and the other
	for _, ip := range ips {
		ip = ip.Unmap()
		f := &families[0]
		if len(*f) > 0 && ip.Is4() != (*f)[0].Is4() {
			f = &families[1]
		}
		if len(*f) < maxAddresses && !slices.Contains(*f, ip) {
			*f = append(*f, ip)
		}
	}
	var order []string
	for i := range maxAddresses {
		for _, f := range families {
			if i < len(f) {
				order = append(order, net.JoinHostPort(f[i].String(), port))
			}
		}
	}
	return order[:min(len(order), maxAddresses)]
}

// race returns the first connection. All its goroutines have ended when it returns.
func (s staggered) race(ctx context.Context, network string, addrs []string) (won net.Conn, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		at   int
		conn net.Conn
		err  error
	}
	results := make(chan result)
	next := time.NewTimer(attemptDelay)
	defer next.Stop()
	started, running := 0, 0
	start := func() {
		if won != nil || started == len(addrs) || started > 0 && ctx.Err() != nil {
			return // the first attempt also says why there is none
		}
		at := started
		started, running = started+1, running+1
		next.Reset(attemptDelay)
		go func() {
			conn, err := s.dial(ctx, network, addrs[at])
			results <- result{at, conn, err}
		}()
	}
	failed := make(failures, len(addrs))
	for start(); running > 0; {
		select {
		case <-next.C:
			start()
		case r := <-results:
			running--
			switch {
			case r.err != nil:
				failed[r.at] = r.err
				start()
			case won == nil:
				won = r.conn
				cancel()
			default:
				_ = r.conn.Close()
			}
		}
	}
	if won != nil {
		return won, nil
	}
	return nil, failed[:started]
}
