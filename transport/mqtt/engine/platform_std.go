//go:build !tinygo

package engine

import "github.com/hubline-iot/hubline/transport/mqtt/dialect"

var defaultDialect = dialect.Hub

// fastLinks is whether a connection may be a Faster.
const fastLinks = true
