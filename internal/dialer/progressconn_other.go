//go:build !linux

package dialer

import "net"

// unsent is not supported on this system: a write makes progress only when the small send buffer
// takes bytes.
func unsent(net.Conn) func() (int64, bool) { return nil }
