//go:build !tinygo

package lean

import "github.com/hubline-iot/hubline/transport/mqtt/dialect"

var defaultDialect = dialect.Hub
