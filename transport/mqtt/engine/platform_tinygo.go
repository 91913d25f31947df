//go:build tinygo

package engine

import "github.com/hubline-iot/hubline/transport/mqtt/dialect"

var defaultDialect = dialect.HubMessages

// fastLinks is false: a board has neither the links nor the memory for large writes.
const fastLinks = false
