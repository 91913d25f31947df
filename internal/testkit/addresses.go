package testkit

import (
	"context"
	"net"
	"time"
)

// OverAddresses returns a function that dials a name with several addresses as net.Dialer does: one
// after the other, each for its share of the time until the deadline. All but the last one swallow
// connections.
func OverAddresses(addresses int, last dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		for left := addresses; left > 1; left-- {
			share, cancel := ctx, func() {}
			if deadline, ok := ctx.Deadline(); ok {
				share, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
			}
			<-share.Done()
			cancel()
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return last(ctx, network, addr)
	}
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)
