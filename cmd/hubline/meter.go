package main

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/hubline-iot/hubline/transport/netopt"
)

// meter counts the bytes of TCP connections, with TLS and what the protocols add.
type meter struct{ in, out atomic.Int64 }

// dialer returns a dialer whose connections are counted. A nil dial is netopt.Direct.
func (m *meter) dialer(dial netopt.DialFunc) netopt.DialFunc {
	if dial == nil {
		dial = netopt.Direct
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &metered{conn, m}, nil
	}
}

type metered struct {
	net.Conn
	meter *meter
}

func (c *metered) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.meter.in.Add(int64(n))
	return n, err
}

func (c *metered) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.meter.out.Add(int64(n))
	return n, err
}

// SyscallConn lets the transports see what the kernel has sent.
func (c *metered) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
