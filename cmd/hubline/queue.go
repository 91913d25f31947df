package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// queue takes messages and knows their results. Messages that fail are added to an unsent.
type queue interface {
	// put takes a message, which what names.
	put(ctx context.Context, m *transport.Message, what string) error
	// flush waits for the results of all messages. It is called once, after the last put.
	flush(ctx context.Context) error
	acknowledged() int
	summary() string
}

// cause returns the error behind one of the SDK, without the operation and the kind.
func cause(err error) error {
	if e := transport.Find(err); e != nil && e.Err != nil {
		return e.Err
	}
	return err
}

// memoryQueue is the client's own queue. A goroutine takes the results, so that a failure shows
// while the input is quiet.
type memoryQueue struct {
	client    *device.Client
	failed    *unsent
	room      chan struct{} // a value for each message without a result
	pending   chan pending  // in order; never full, because room is full before
	collected chan struct{} // closed when all results are there
}

// pending is a message without a result yet.
type pending struct {
	*device.Receipt
	what string
}

// most is how many results may be outstanding before put waits for one.
const most = 4096

// newMemoryQueue starts the goroutine, which ends after flush, with the client at the latest.
func newMemoryQueue(client *device.Client, failed *unsent) *memoryQueue {
	q := &memoryQueue{client: client, failed: failed, room: make(chan struct{}, most),
		pending: make(chan pending, most), collected: make(chan struct{})}
	go q.collect()
	return q
}

func (q *memoryQueue) collect() {
	defer close(q.collected)
	for p := range q.pending {
		err := p.Wait(context.Background())
		if err != nil && !errors.Is(err, transport.Closed) { // the command knows why it ends
			q.failed.add(p.what, err)
		}
		<-q.room
	}
}

func (q *memoryQueue) put(ctx context.Context, m *transport.Message, what string) error {
	select {
	case q.room <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	r := new(device.Receipt)
	if err := q.client.Enqueue(ctx, m, r); err != nil {
		<-q.room
		return err
	}
	q.pending <- pending{r, what}
	return nil
}

func (q *memoryQueue) flush(ctx context.Context) error {
	close(q.pending)
	select {
	case <-q.collected:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
	say     func(format string, args ...any)
	full    bool // the disk was, and the user knows

	ended error // why Run ended; read after running.Wait
}

// openDisk opens the outbox and starts the client, which connects in the background.
func openDisk(d *delivery, session *session) (queue, error) {
	q := &diskQueue{folder: d.outbox, client: session.Client, say: d.say}
	var err error
	q.Queue, err = outbox.Open(d.outbox, &outbox.Options{OnFailed: func(m *transport.Message, err error) {
		d.failed.add("message "+m.ID, err)
	}})
	if err != nil {
		return nil, usage("-outbox: %v", cause(err))
	}
	if n := q.Stats().Damaged; n > 0 {
		fmt.Fprintf(d.tool.log, "damaged messages in %s, which cannot be sent or were never accepted: %d\n",
			d.outbox, n) // also with -quiet
	}
	if n := q.Stats().Waiting; n > 0 {
		d.say("%d messages wait in %s", n, d.outbox)
	}
	if err := session.Start(); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	q.stop = stop
	q.running.Go(func() { // ends with flush
		if err := q.Run(ctx, session.Client); ctx.Err() == nil && !errors.Is(err, transport.Closed) {
			q.ended = err
			session.giveUp(err) // nothing more would be sent
		}
	})
	return q, nil
}

func (q *diskQueue) put(ctx context.Context, m *transport.Message, _ string) error {
	return q.onSpace(ctx, func() error { return q.Put(ctx, m) }, func() uint64 { return q.Stats().Waiting })
}

// fullPause is the time between two attempts to write on a full disk.
const fullPause = 100 * time.Millisecond

// onSpace calls put until the disk is not full. It gives up when no message waits: each that does
// frees space once it is acknowledged.
func (q *diskQueue) onSpace(ctx context.Context, put func() error, waiting func() uint64) error {
	for drained := 0; ; {
		err := put()
		if err == nil || transport.KindOf(err) != transport.Quota {
			return err
		}
		if waiting() > 0 {
			drained = 0
		} else if drained++; drained == 2 { // after the first, the files of the last messages go
			return &exitError{exitFailed, err}
		}
		if !q.full {
			q.full = true
			q.say("%v", cause(err))
		}
		if err := pause(ctx, fullPause); err != nil {
			return err
		}
	}
}

func (q *diskQueue) flush(ctx context.Context) error {
	err := q.Flush(ctx)
	q.stop()
	q.running.Wait()
	err = errors.Join(err, q.Close())
	return firstError(q.ended, err)
}

func (q *diskQueue) acknowledged() int { return int(q.Stats().Acknowledged) }

func (q *diskQueue) summary() string {
	s := q.Stats()
	return count(s.Acknowledged, s.Failed, q.client.Stats().Resent, s.Waiting, " in "+q.folder)
}
