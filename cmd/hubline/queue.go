package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// queue takes messages and knows their results.
type queue interface {
	put(ctx context.Context, m *transport.Message) error
	// flush waits for the results of all messages, and returns the first that is a failure.
	flush(ctx context.Context) error
	acknowledged() int
	summary() string
}

// memoryQueue is the client's own queue.
type memoryQueue struct {
	client  *device.Client
	pending []*device.Receipt // in order; memory bounded by most
	failed  error
}

// most is how many results may be outstanding before put waits for the oldest.
const most = 4096

func (q *memoryQueue) put(ctx context.Context, m *transport.Message) error {
	for len(q.pending) > 0 && (len(q.pending) >= most || q.pending[0].Ready()) {
		if err := q.oldest(ctx); err != nil {
			return err
		}
	}
	r := new(device.Receipt)
	if err := q.client.Enqueue(ctx, m, r); err != nil {
		return err
	}
	q.pending = append(q.pending, r)
	return nil
}

// oldest waits for the oldest result. The error is that of ctx.
func (q *memoryQueue) oldest(ctx context.Context) error {
	err := q.pending[0].Wait(ctx)
	if err != nil && ctx.Err() != nil && errors.Is(err, transport.Cancelled) {
		return err
	}
	if err != nil && q.failed == nil {
		q.failed = err
	}
	q.pending = q.pending[1:]
	return nil
}

func (q *memoryQueue) flush(ctx context.Context) error {
	for len(q.pending) > 0 {
		if err := q.oldest(ctx); err != nil {
			return err
		}
	}
	return q.failed
}

func (q *memoryQueue) acknowledged() int { return int(q.client.Stats().Acknowledged) }

func (q *memoryQueue) summary() string {
	s := q.client.Stats()
	return count(s.Acknowledged, s.Refused+s.Expired+s.Dropped, s.Resent, uint64(s.Queued), "")
}

func count(acknowledged, failed, resent, waiting uint64, where string) string {
	text := fmt.Sprintf("%d acknowledged", acknowledged)
	for _, more := range []struct {
		n    uint64
		what string
	}{{failed, " failed"}, {resent, " sent again"}, {waiting, " waiting" + where}} {
		if more.n > 0 {
			text += fmt.Sprintf(", %d%s", more.n, more.what)
		}
	}
	return text
}

// diskQueue is an outbox in files.
type diskQueue struct {
	*outbox.Queue
	folder  string
	client  *device.Client
	running sync.WaitGroup
	stop    context.CancelFunc

	mu     sync.Mutex
	failed error // the first failure; guarded by mu
}

// openDisk opens the outbox and starts the client, which connects in the background.
func openDisk(s *sending, session *session) (queue, error) {
	q := &diskQueue{folder: s.outbox, client: session.Client}
	var err error
	q.Queue, err = outbox.Open(s.outbox, &outbox.Options{OnFailed: func(_ *transport.Message, err error) { q.fail(err) }})
	if err != nil {
		return nil, usage("-outbox: %v", err)
	}
	if n := q.Stats().Waiting; n > 0 {
		s.say("%d messages wait in %s", n, s.outbox)
	}
	if err := session.Start(); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	q.stop = stop
	q.running.Go(func() { // ends with flush
		if err := q.Run(ctx, session.Client); ctx.Err() == nil && !errors.Is(err, transport.Closed) {
			q.fail(err)
		}
	})
	return q, nil
}

func (q *diskQueue) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed == nil {
		q.failed = err
	}
}

func (q *diskQueue) put(ctx context.Context, m *transport.Message) error { return q.Put(ctx, m) }

func (q *diskQueue) flush(ctx context.Context) error {
	err := q.Flush(ctx)
	q.stop()
	q.running.Wait()
	err = errors.Join(err, q.Close())
	q.mu.Lock()
	defer q.mu.Unlock()
	return firstError(q.failed, err)
}

func (q *diskQueue) acknowledged() int { return int(q.Stats().Acknowledged) }

func (q *diskQueue) summary() string {
	s := q.Stats()
	return count(s.Acknowledged, s.Failed, q.client.Stats().Resent, s.Waiting, " in "+q.folder)
}
