package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/device"
)

// delivery has the flags of commands that send messages and end when each has its result.
type delivery struct {
	*connection
	flush  time.Duration
	outbox string
	failed unsent
}

// delivery adds the flags to a command's, after its own.
func (t *tool) delivery(c *cobra.Command) *delivery {
	d := &delivery{}
	flags := c.Flags()
	flags.DurationVar(&d.flush, "flush-timeout", time.Minute, "how long to wait for acknowledgements at the end; "+
		"0: for ever")
	flags.StringVar(&d.outbox, "outbox", "", "`DIR` that keeps messages until they are acknowledged, over restarts too")
	d.connection = t.connection(c)
	return d
}

// deliver connects, lets produce put all messages into a queue, and waits for their results. total
// is their number; 0: not known.
func (d *delivery) deliver(ctx context.Context, total int, produce func(context.Context, queue) error) error {
	if d.flush < 0 {
		return usage("-flush-timeout: %v is negative; give a time such as 30s, or 0 for none", d.flush)
	}
	session, err := d.prepare(ctx, &device.Options{})
	if err != nil {
		return err
	}
	defer session.Close()
	to, err := d.open(ctx, session)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { d.say("sending what was accepted; Ctrl-C again ends at once") })
	defer stop()
	begin := time.Now()
	bar := newProgress(d.tool, int64(total), func() int64 { return int64(to.acknowledged()) }, inCount)
	produceErr := produce(session.ctx, to)
	flushErr := d.finish(to, session)
	bar.end()
	if errors.Is(produceErr, context.Canceled) { // Ctrl-C, or the client gave up, which is its cause
		produceErr = session.cause()
	}
	d.say("%s in %s", to.summary(), took(time.Since(begin)))
	return firstError(produceErr, flushErr, d.failed.err())
}

// open returns the queue of the messages. Without an outbox on the disk, the connection comes
// first, so that a wrong key shows before anything is read.
func (d *delivery) open(ctx context.Context, session *session) (queue, error) {
	if d.outbox != "" {
		return openDisk(d, session)
	}
	if err := d.connection.open(ctx, session); err != nil {
		return nil, err
	}
	return newMemoryQueue(session.Client, &d.failed), nil
}

// finish waits for the results of everything in the queue, as long as the client lives.
func (d *delivery) finish(to queue, session *session) error {
	ctx, cancel := limited(session.alive, d.flush)
	defer cancel()
	err := to.flush(ctx)
	switch {
	case session.cause() != nil:
		return session.cause()
	case errors.Is(err, context.DeadlineExceeded):
		return &exitError{exitLater, fmt.Errorf("not all messages were acknowledged within %v: %s", d.flush, to.summary())}
	}
	return err
}

// took returns a duration to the millisecond.
func took(d time.Duration) string {
	if d < time.Millisecond {
		return "<1ms"
	}
	return d.Round(time.Millisecond).String()
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// firstError returns the first error, which is the cause of the others.
func firstError(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}
