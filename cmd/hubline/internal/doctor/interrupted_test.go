package doctor

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A row that Ctrl-C ended claims nothing.
func TestAnInterruptedRowClaimsNothing(t *testing.T) {
	examine(t, nil, func(p *patient) {
		ctx, interrupt := context.WithCancel(p.t.Context())
		defer interrupt()
		time.AfterFunc(p.probe.Options.Hold/2, interrupt)
		p.endsInterrupted(ctx, "second device mqtt")
	})
}

// Ctrl-C inside a step is no failure of the network.
func TestAnInterruptedStepIsNotBad(t *testing.T) {
	examine(t, nil, func(p *patient) {
		ctx, interrupt := context.WithCancel(p.t.Context())
		defer interrupt()
		p.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			interrupt()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		p.probe.Lookup = func(context.Context, string) ([]string, error) { return []string{"192.0.2.1"}, nil }
		p.endsInterrupted(ctx, "port 8883")
	})
	examine(t, nil, func(p *patient) {
		ctx, interrupt := context.WithCancel(p.t.Context())
		defer interrupt()
		p.probe.Lookup = func(ctx context.Context, _ string) ([]string, error) {
			interrupt()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		p.endsInterrupted(ctx, "name")
	})
}

func (p *patient) endsInterrupted(ctx context.Context, check string) {
	p.t.Helper()
	rows := p.probe.Run(ctx)
	last := rows[len(rows)-1]
	require.Equal(p.t, Row{Check: check, Mark: Skipped, Figure: "interrupted", Hint: "it needs more time"}, last)
	require.Nil(p.t, Worst(rows))
}
