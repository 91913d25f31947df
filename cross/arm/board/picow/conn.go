//go:build tinygo

package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/soypat/seqs"
	"github.com/soypat/seqs/stacks"

	"github.com/hubline-iot/hubline/cross/arm/board/wifi"
	"github.com/hubline-iot/hubline/sntp"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

const (
	// dialTime is how long a TCP connection may take.
	dialTime = 15 * time.Second
	// flushTime is how long Close waits for what was written.
	flushTime = 250 * time.Millisecond
	// firstPort is the first of 16,384 ports for connections, one of which is chosen at random.
	firstPort = 49152
	// The buffers of a connection hold more than the firmware's packets.
	sendBuffer, receiveBuffer = 2048, 2048
)

var errDial = errors.New("tcp: the host does not answer; check addr and that the gateway listens")

// conn is a TCP connection of seqs.
type conn struct {
	*stacks.TCPConn
	stack *stacks.PortStack
	port  uint16
}

// DialTCP implements wifi.Stack.
func (c *chip) DialTCP(ctx context.Context, addr string) (engine.Conn, error) {
	to, mac, err := c.resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	tcp, err := stacks.NewTCPConn(c.stack, stacks.TCPConnConfig{TxBufSize: sendBuffer, RxBufSize: receiveBuffer})
	if err != nil {
		return nil, err
	}
	n := &conn{tcp, c.stack, randomPort()}
	if err := tcp.OpenDialTCP(n.port, mac, to, seqs.Value(random())); err != nil {
		return nil, err
	}
	until(ctx, dialTime, func() bool { return !tcp.State().IsPreestablished() })
	if tcp.State() != seqs.StateEstablished {
		_ = c.stack.CloseTCP(n.port)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, errDial
	}
	return n, nil
}

// Close implements engine.Conn. It sends what was written and the end, and frees the port, which
// unblocks Read and Write.
func (n *conn) Close() error {
	err := n.TCPConn.Close()
	until(context.Background(), flushTime, func() bool { return n.State().IsClosed() })
	_ = n.stack.CloseTCP(n.port)
	return err
}

// DialUDP implements wifi.Stack. The clock is the only user, with one connection at a time.
func (c *chip) DialUDP(ctx context.Context, addr string) (sntp.Conn, error) {
	to, mac, err := c.resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	local := wifi.Endpoint{MAC: c.stack.HardwareAddr6(), IP: c.stack.Addr().As4(), Port: randomPort()}
	remote := wifi.Endpoint{MAC: mac, IP: to.Addr().As4(), Port: to.Port()}
	c.socket = wifi.NewSocket(local, remote, c.device.SendEth)
	return c.socket, nil
}

func randomPort() uint16 { return firstPort + uint16(random()%(1<<14)) }

// split returns the parts of host:port.
func split(addr string) (host string, port uint16, err error) {
	host, text, ok := strings.Cut(addr, ":")
	n, err := strconv.ParseUint(text, 10, 16)
	if !ok || host == "" || err != nil || n == 0 {
		return "", 0, errAddr
	}
	return host, uint16(n), nil
}
