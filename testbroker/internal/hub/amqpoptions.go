package hub

import (
	"cmp"
	"time"
)

// AMQPOptions are the settings of connections over AMQP. The zero value of each field stands for
// its default.
type AMQPOptions struct {
	// MaxFrameSize is the largest frame that the hub takes, 512 at least. Default: 65536.
	MaxFrameSize uint32
	// MaxMessageSize is the largest encoded message, or batch, that a telemetry link takes: the link
	// is detached for one that is larger. What a message may have by the hub's rules, [MaxMessage], is
	// less. Default: 1 MiB.
	MaxMessageSize uint64
	// ChannelMax and HandleMax are the highest numbers of sessions of a connection and of links of a
	// session. Defaults: 8191 and 255.
	ChannelMax uint16
	HandleMax  uint32
	// SessionWindow is how many transfer frames a client may send ahead of the hub in one session.
	// Default: 2048.
	SessionWindow uint32
	// Credit is for how many messages the hub gives a link credit; it renews it at half. Default: 500.
	Credit uint32
	// IdleTimeout is how long a client may be silent before the hub closes its connection. Half of it
	// is announced to the client. Default: 8 minutes; negative: no limit.
	IdleTimeout time.Duration
	// MaxTokens is how many tokens one connection may hold. Default: 2000.
	MaxTokens int
	// OmitNextIncomingID leaves the next-incoming-id out of each flow. The standard forbids it once a
	// session is begun; some hubs do it.
	OmitNextIncomingID bool
}

func (o AMQPOptions) withDefaults() AMQPOptions {
	return AMQPOptions{
		MaxFrameSize:   max(cmp.Or(o.MaxFrameSize, 1<<16), 512),
		MaxMessageSize: cmp.Or(o.MaxMessageSize, 1<<20),
		ChannelMax:     cmp.Or(o.ChannelMax, 8191),
		HandleMax:      cmp.Or(o.HandleMax, 255),
		SessionWindow:  cmp.Or(o.SessionWindow, 2048),
		Credit:         cmp.Or(o.Credit, 500),
		IdleTimeout:    max(cmp.Or(o.IdleTimeout, 8*time.Minute), 0),
		MaxTokens:      cmp.Or(max(o.MaxTokens, 0), 2000),

		OmitNextIncomingID: o.OmitNextIncomingID,
	}
}

// AMQPError is an error as AMQP has them, for example what a fault rejects a message with.
type AMQPError struct{ Condition, Description string }

// Error returns the condition and the description.
func (e AMQPError) Error() string {
	if e.Description == "" {
		return e.Condition
	}
	return e.Condition + ": " + e.Description
}
