package interop

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/stretchr/testify/require"
)

// A checkpointMemory is a store for processors in memory.
type checkpointMemory struct {
	mu          sync.Mutex
	changes     int
	owned       map[string]azeventhubs.Ownership // by partition
	checkpoints map[string]azeventhubs.Checkpoint
}

func newCheckpointMemory() *checkpointMemory {
	return &checkpointMemory{owned: map[string]azeventhubs.Ownership{}, checkpoints: map[string]azeventhubs.Checkpoint{}}
}

func (m *checkpointMemory) ClaimOwnership(_ context.Context, all []azeventhubs.Ownership,
	_ *azeventhubs.ClaimOwnershipOptions) ([]azeventhubs.Ownership, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var got []azeventhubs.Ownership
	for _, o := range all {
		if old, ok := m.owned[o.PartitionID]; ok && (o.ETag == nil || *o.ETag != *old.ETag) {
			continue
		}
		m.changes++
		tag := azcore.ETag(fmt.Sprint(m.changes))
		o.ETag, o.LastModifiedTime = &tag, time.Now()
		m.owned[o.PartitionID] = o
		got = append(got, o)
	}
	return got, nil
}

func (m *checkpointMemory) ListOwnership(context.Context, string, string, string,
	*azeventhubs.ListOwnershipOptions) ([]azeventhubs.Ownership, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []azeventhubs.Ownership
	for _, o := range m.owned {
		all = append(all, o)
	}
	return all, nil
}

func (m *checkpointMemory) ListCheckpoints(context.Context, string, string, string,
	*azeventhubs.ListCheckpointsOptions) ([]azeventhubs.Checkpoint, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []azeventhubs.Checkpoint
	for _, c := range m.checkpoints {
		all = append(all, c)
	}
	return all, nil
}

func (m *checkpointMemory) SetCheckpoint(_ context.Context, c azeventhubs.Checkpoint,
	_ *azeventhubs.SetCheckpointOptions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checkpoints[c.PartitionID] = c
	return nil
}

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

func TestGoEventHubsProcessorContinuesAtItsCheckpoint(t *testing.T) {
	h := newEventsHub(t, nil)
	store := newCheckpointMemory()
	h.send(20)
	require.Equal(t, bodiesFrom(0, 20), process(t, h, store, 20))
	h.send(5)
	require.Equal(t, bodiesFrom(20, 25), process(t, h, store, 5))
	seen(t, "processor of azeventhubs v2: 20 events, then 5 more from the checkpoint")
}
