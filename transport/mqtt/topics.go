package mqtt

import "github.com/hubline-iot/hubline/transport/mqtt/dialect"

// Topics is the topic map of a broker that is no hub, for Options.Dialect.
type Topics = dialect.Topics
