package device_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

func sprintf(verb string, v any) string { return fmt.Sprintf(verb, v) }

// instant is a transport whose sessions acknowledge inside Send and allocate nothing.
type instant struct {
	sink transport.Sink
	info transport.Info
	last *transport.Message // of a batch
}

func (i *instant) Dial(_ context.Context, cfg *transport.Config) (transport.Session, error) {
	i.sink = cfg.Sink
	return i, nil
}
func (i *instant) Info() transport.Info { return i.info }
func (i *instant) Run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
func (i *instant) Send(batch []transport.Item) {
	for _, it := range batch {
		i.last = it.Msg
		i.sink.Done(it.Tag, nil)
	}
}
func (i *instant) Do(*transport.Request) {}

// Enqueue and Send allocate nothing, up to the result.
func TestAMessageAllocatesNothing(t *testing.T) {
	c := made(t, creds(), &instant{}, nil)
	ctx := within(t, time.Minute)
	require.NoError(t, c.Open(ctx))

	m := msg(1)
	rs := make([]device.Receipt, 64)
	lot := func() {
		for i := range rs {
			if err := c.Enqueue(ctx, m, &rs[i]); err != nil {
				t.Fatal(err)
			}
		}
		for i := range rs {
			if err := rs[i].Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	lot()
	require.Zero(t, testing.AllocsPerRun(100, lot), "Enqueue and Wait, 64 messages")
	call := func() {
		if err := c.Send(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	call()
	require.Less(t, testing.AllocsPerRun(1000, call), 0.1, "Send")
}

func BenchmarkEnqueueToResult(b *testing.B) {
	c, err := device.New(creds(), &instant{}, nil)
	require.NoError(b, err)
	defer c.Close()
	require.NoError(b, c.Open(b.Context()))
	m := msg(1)
	rs := make([]device.Receipt, 128)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		r := &rs[i%len(rs)]
		if i >= len(rs) {
			if err := r.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		if err := c.Enqueue(b.Context(), m, r); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
