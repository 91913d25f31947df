package hub

import (
	"cmp"
	"fmt"
	"slices"
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
	Mechanisms         []string
	OmitNextIncomingID bool
	StrictTypes        bool
}

// mechanisms are all SASL mechanisms, in the order of the service.
var mechanisms = []string{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"}

// check returns why the options are invalid.
func (o AMQPOptions) check() error {
	for _, m := range o.Mechanisms {
		if !slices.Contains(mechanisms, m) {
			return fmt.Errorf("testbroker: AMQPOptions.Mechanisms: no such mechanism: %q", m)
		}
	}
	return nil
}

func (o AMQPOptions) withDefaults() AMQPOptions {
	if len(o.Mechanisms) == 0 {
		o.Mechanisms = mechanisms
	}
	return AMQPOptions{
		MaxFrameSize:   max(cmp.Or(o.MaxFrameSize, 1<<16), 512),
		MaxMessageSize: cmp.Or(o.MaxMessageSize, 1<<20),
		ChannelMax:     cmp.Or(o.ChannelMax, 8191),
		HandleMax:      cmp.Or(o.HandleMax, 255),
		SessionWindow:  cmp.Or(o.SessionWindow, 2048),
		Credit:         cmp.Or(o.Credit, 500),
		IdleTimeout:    max(cmp.Or(o.IdleTimeout, 8*time.Minute), 0),
		MaxTokens:      cmp.Or(max(o.MaxTokens, 0), 2000),

		Mechanisms:         o.Mechanisms,
		OmitNextIncomingID: o.OmitNextIncomingID,
		StrictTypes:        o.StrictTypes,
	}
}
