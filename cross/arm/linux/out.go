package main

import (
	"context"
	"os"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// runAgainAfter is the wait after a Run that ended, for example because the files cannot be read.
const runAgainAfter = 10 * time.Second

// out is the outbox of the readings: in the client's memory, or in files.
type out struct {
	client *device.Client
	queue  *outbox.Queue // nil: in memory
	ran    chan struct{} // closed when the queue's Run has returned
}

func openOut(folder string, client *device.Client) (*out, error) {
	o := &out{client: client}
	if folder == "" {
		return o, nil
	}
	queue, err := outbox.Open(folder, &outbox.Options{MaxBytes: 64 << 20, Overflow: device.OverflowDropOldest,
		OnFailed: func(m *transport.Message, err error) {
			os.Stderr.WriteString("a reading was refused: " + err.Error() + "\n")
		}})
	if err != nil {
		return nil, err
	}
	o.queue, o.ran = queue, make(chan struct{})
	go func() {
		defer close(o.ran)
		for { // nobody is there to restart it
			err := queue.Run(context.Background(), client)
			if transport.KindOf(err) == transport.Closed {
				return
			}
			os.Stderr.WriteString("the outbox waits: " + err.Error() + "\n")
			time.Sleep(runAgainAfter)
		}
	}()
	return o, nil
}

func (o *out) put(ctx context.Context, m *transport.Message) error {
	if o.queue == nil {
		return o.client.Enqueue(ctx, m, nil)
	}
	return o.queue.Put(ctx, m)
}

// flush waits until the hub has all readings, or ctx ends, which loses nothing if the outbox is in
// files.
func (o *out) flush(ctx context.Context) error {
	if o.queue == nil {
		return o.client.Flush(ctx)
	}
	switch err := o.queue.Flush(ctx); {
	case transport.KindOf(err) == transport.Dropped: // as DropOldest promises
		os.Stderr.WriteString(err.Error() + "\n")
	case ctx.Err() == nil:
		return err
	}
	return nil
}

func (o *out) close() error {
	if o.queue == nil {
		return nil
	}
	err := o.queue.Close()
	<-o.ran
	return err
}
