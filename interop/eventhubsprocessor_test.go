package interop

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/stretchr/testify/require"
)

// newProcessor makes a processor that reads from the beginning where it has no checkpoint.
func newProcessor(t *testing.T, h *eventsHub, store azeventhubs.CheckpointStore) *azeventhubs.Processor {
	t.Helper()
	client := newEventsClient2(t, h, h.plain, "$Default").(eventsClient2)
	yes := true
	p, err := azeventhubs.NewProcessor(client.ConsumerClient, store, &azeventhubs.ProcessorOptions{
		LoadBalancingStrategy: azeventhubs.ProcessorStrategyGreedy, UpdateInterval: 50 * time.Millisecond,
		StartPositions: azeventhubs.StartPositions{Default: azeventhubs.StartPosition{Earliest: &yes}},
	})
	require.NoError(t, err)
	return p
}

// readAll reads and checkpoints the events of a processor, until ctx ends.
func readAll(ctx context.Context, p *azeventhubs.Processor, read chan<- string) {
	var readers sync.WaitGroup
	defer readers.Wait()
	for {
		one := p.NextPartitionClient(ctx)
		if one == nil {
			return
		}
		readers.Go(func() {
			defer one.Close(context.Background())
			for {
				events, err := one.ReceiveEvents(ctx, 1, nil)
				if err != nil {
					return // ctx has ended, or another processor has the partition
				}
				if err := one.UpdateCheckpoint(ctx, events[0], nil); err != nil {
					return
				}
				select {
				case read <- string(events[0].Body):
				case <-ctx.Done():
					return
				}
			}
		})
	}
}

// process runs a processor until it has read n events, and returns their bodies.
func process(t *testing.T, h *eventsHub, store azeventhubs.CheckpointStore, n int) []string {
	t.Helper()
	p := newProcessor(t, h, store)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }() // ends with ctx
	read := make(chan string, n)
	var readers sync.WaitGroup
	readers.Go(func() { readAll(ctx, p, read) })
	var all []string
	for range n {
		select {
		case b := <-read:
			all = append(all, b)
		case <-soon(t).Done():
			require.Fail(t, "the processor reads no more", "%d of %d", len(all), n)
		}
	}
	cancel()
	<-ended
	readers.Wait()
	require.Empty(t, read)
	return all
}
