package lean

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestAfterEnd(t *testing.T) {
	for name, of := range map[string]func(context.Context) context.Context{
		"any context":  func(ctx context.Context) context.Context { return ctx },
		"the device's": func(ctx context.Context) context.Context { return withAfterFunc{ctx} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				ran := 0
				stop := contextAfterFunc(of(ctx), func() { ran++ })
				require.True(t, stop())
				require.False(t, stop(), "stopped before")
				stop = contextAfterFunc(of(ctx), func() { ran += 10 })
				cancel()
				synctest.Wait()
				require.Equal(t, 10, ran)
				require.False(t, stop(), "it ran")
				contextAfterFunc(of(ctx), func() { ran += 100 }) // ctx has ended
				synctest.Wait()
				require.Equal(t, 110, ran)
			})
		})
	}
}
