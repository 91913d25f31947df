package hub

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// mechanisms are all SASL mechanisms, in the order of the service.
var mechanisms = []string{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"}

// checkAMQP returns why the options are invalid.
func checkAMQP(o hubdata.AMQPOptions) error {
	for _, m := range o.Mechanisms {
		if !slices.Contains(mechanisms, m) {
			return fmt.Errorf("testbroker: AMQPOptions.Mechanisms: no such mechanism: %q", m)
		}
	}
	return nil
}

func amqpDefaults(o hubdata.AMQPOptions) hubdata.AMQPOptions {
	if len(o.Mechanisms) == 0 {
		o.Mechanisms = mechanisms
	}
	return hubdata.AMQPOptions{
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
