package interop

import (
	"context"
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs"
	"github.com/stretchr/testify/require"
)

type eventsClient1 struct{ *azeventhubs.ConsumerClient }

func newEventsClient1(t testing.TB, h *eventsHub, s, group string) eventsClient {
	t.Helper()
	o := &azeventhubs.ConsumerClientOptions{
		TLSConfig:    h.hub.ClientTLS(),
		RetryOptions: azeventhubs.RetryOptions{MaxRetries: 1, RetryDelay: 10 * time.Millisecond},
	}
	if s == h.web {
		o.NewWebSocketConn = func(ctx context.Context, p azeventhubs.WebSocketConnParams) (net.Conn, error) {
			return h.dialWeb(ctx, p.Host)
		}
	}
	c, err := azeventhubs.NewConsumerClientFromConnectionString(s, "", group, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return eventsClient1{c}
}

func (c eventsClient1) partitions(ctx context.Context) ([]string, error) {
	p, err := c.GetEventHubProperties(ctx, nil)
	return p.PartitionIDs, err
}

func (c eventsClient1) state(ctx context.Context, partition string) (begin, last int64, offset string, err error) {
	p, err := c.GetPartitionProperties(ctx, partition, nil)
	return p.BeginningSequenceNumber, p.LastEnqueuedSequenceNumber, strconv.FormatInt(p.LastEnqueuedOffset, 10), err
}

func (c eventsClient1) open(partition string, at eventsStart, epoch *int64) (eventsReader, error) {
	start := azeventhubs.StartPosition{Inclusive: at.inclusive}
	switch {
	case at.earliest:
		start.Earliest = &at.earliest
	case at.latest:
		start.Latest = &at.latest
	case at.offset != "":
		number, err := strconv.ParseInt(at.offset, 10, 64)
		if err != nil {
			return nil, err
		}
		start.Offset = &number
	case !at.at.IsZero():
		start.EnqueuedTime = &at.at
	default:
		start.SequenceNumber = &at.sequence
	}
	p, err := c.NewPartitionClient(partition,
		&azeventhubs.PartitionClientOptions{StartPosition: start, OwnerLevel: epoch})
	return eventsReader1{p}, err
}

// partitionReader1 is what the client of a partition and that of a processor have in common.
type partitionReader1 interface {
	ReceiveEvents(ctx context.Context, n int,
		o *azeventhubs.ReceiveEventsOptions) ([]*azeventhubs.ReceivedEventData, error)
	Close(ctx context.Context) error
}

type eventsReader1 struct{ partitionReader1 }

func (r eventsReader1) read(ctx context.Context, n int) ([]readEvent, error) {
	some, err := r.ReceiveEvents(ctx, n, nil)
	var all []readEvent
	for _, e := range some {
		all = append(all, readEvent{string(e.Body), strconv.FormatInt(e.Offset, 10), text(e.MessageID), text(e.ContentType),
			e.SequenceNumber, *e.EnqueuedTime, e.Properties, e.SystemProperties})
	}
	var coded *azeventhubs.Error
	if errors.As(err, &coded) && coded.Code == azeventhubs.ErrorCodeOwnershipLost {
		return all, errors.New("ownershiplost")
	}
	return all, err
}

func (r eventsReader1) close() { _ = r.Close(context.Background()) }
