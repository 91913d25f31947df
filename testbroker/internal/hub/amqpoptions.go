package hub

import (
	"cmp"
	"time"
)

// AMQPOptions are the settings of testbroker.AMQPOptions, which documents them.
type AMQPOptions struct {
	MaxFrameSize       uint32
	MaxMessageSize     uint64
	ChannelMax         uint16
	HandleMax          uint32
	SessionWindow      uint32
	Credit             uint32
	IdleTimeout        time.Duration
	MaxTokens          int
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
