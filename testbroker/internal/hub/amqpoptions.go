package hub

import (
	"cmp"
	"time"
)

// AMQPOptions are the settings of AMQP connections. The zero value of each field means its default.
type AMQPOptions struct {
	// MaxFrameSize is the largest frame that the hub accepts, at least 512 bytes. Default: 65536.
	MaxFrameSize uint32
	// MaxMessageSize is the largest encoded message or batch, in bytes, that a telemetry link accepts.
	// The hub detaches the link for a larger one. The size limit of one message, [MaxMessage], is
	// smaller. Default: 1 MiB.
	MaxMessageSize uint64
	// ChannelMax is the highest channel number of a connection, HandleMax the highest link handle of a
	// session. Defaults: 8191 and 255.
	ChannelMax uint16
	HandleMax  uint32
	// SessionWindow is how many transfer frames a client may send ahead of the hub in one session.
	// Default: 2048.
	SessionWindow uint32
	// Credit is the number of messages for which the hub gives a link credit. It renews the credit
	// when half is used. Default: 500.
	Credit uint32
	// IdleTimeout is how long a client may be silent before the hub closes its connection. The hub
	// announces half of it to the client. Default: 8 minutes; negative: no limit.
	IdleTimeout time.Duration
	// MaxTokens is how many tokens one connection may hold. Default: 2000.
	MaxTokens int
	// OmitNextIncomingID omits next-incoming-id from each flow. The standard requires it once a
	// session has begun, but some hubs omit it.
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

// AMQPError is an AMQP error, for example the error of a rejected message.
type AMQPError struct{ Condition, Description string }

// Error returns the condition and the description.
func (e AMQPError) Error() string {
	if e.Description == "" {
		return e.Condition
	}
	return e.Condition + ": " + e.Description
}
