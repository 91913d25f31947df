package retrypolicy_test

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Shorthands of the tables of all of this package's presets.
const (
	msec = time.Millisecond
	s    = time.Second
)

var lost = &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection}
