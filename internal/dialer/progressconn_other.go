//go:build !linux

package dialer

import "net"

// kernelQueue is not supported on this system.
func kernelQueue(net.Conn) sendQueue { return nil }
