package lifetime

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
)

func TestAfterFunc(t *testing.T) {
	for name, of := range map[string]func(context.Context) context.Context{
		"any context":         func(ctx context.Context) context.Context { return ctx },
		"one with the method": func(ctx context.Context) context.Context { return withAfterFunc{ctx} },
	} {
		testkit.Run(t, name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ran := 0
			stop := AfterFunc(of(ctx), func() { ran++ })
			require.True(t, stop())
			require.False(t, stop(), "stopped before")
			stop = AfterFunc(of(ctx), func() { ran += 10 })
			cancel()
			synctest.Wait()
			require.Equal(t, 10, ran)
			require.False(t, stop(), "it ran")
			AfterFunc(of(ctx), func() { ran += 100 }) // ctx has ended
			synctest.Wait()
			require.Equal(t, 110, ran)
		})
	}
}

// withAfterFunc is a context with the method AfterFunc.
type withAfterFunc struct{ context.Context }

func (c withAfterFunc) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.Context, f) }

func TestAfterFuncOfAContextWithoutEndNeedsNoGoroutine(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		before := testkit.Goroutines()
		stop := AfterFunc(context.Background(), func() { t.Error("it ran") })
		require.Equal(t, before, testkit.Goroutines())
		require.True(t, stop())
	})
}

// The end of ctx counts before a stop, even when the goroutine sees both at once.
func TestAfterFuncRunsWhenTheContextEndedBeforeStop(t *testing.T) {
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan struct{})
		stop := AfterFunc(struct{ context.Context }{ctx}, func() { close(ran) })
		cancel()
		require.False(t, stop())
		<-ran
	}
}
