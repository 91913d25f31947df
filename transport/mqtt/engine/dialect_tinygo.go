//go:build tinygo

package engine

import "github.com/hubline-iot/hubline/transport/mqtt/dialect"

var defaultDialect = dialect.HubMessages
