package outbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// cursor is the read position of Run.
type cursor struct {
	queue   *Queue
	ctx     context.Context
	at      uint64 // the number of the next record
	segment *segment
	file    file
	scan    scanner
	left    time.Duration // for repeated reads of the segment's unreadable sectors
}

func (c *cursor) close() {
	if c.file != nil {
		_ = c.file.Close()
	}
	c.segment, c.file, c.scan = nil, nil, scanner{window: c.scan.window[:0]}
}

// view is the readable part of a segment.
type view struct {
	segment *segment
	limit   int64
	next    uint64 // number behind the last record before limit
}

// next waits for the next record and reads it into s. s.err is errDamaged if the record is missing.
func (c *cursor) next(s *slot) error {
	for {
		v, grown, err := c.aim()
		if err != nil {
			return err
		}
		if grown != nil {
			if c.segment != nil && !c.queue.has(c.segment) {
				c.close()
			}
			select {
			case <-grown:
				continue
			case <-c.ctx.Done():
				return context.Cause(c.ctx)
			}
		}
		if c.segment != v.segment {
			switch err := c.open(v.segment); {
			case errors.Is(err, os.ErrNotExist) && !c.queue.has(v.segment): // DropOldest deleted it first
				continue
			case err != nil:
				return err
			}
		}
		c.scan.limit = v.limit
		number, message, err := c.scan.read()
		switch {
		case errors.Is(err, errEnd) || err == nil && number >= v.next:
			number, message = v.next-1, nil // no further record is in this view
			c.scan.skip(v.next)
		case err != nil && c.ctx.Err() != nil:
			return context.Cause(c.ctx)
		case err != nil:
			return fmt.Errorf("outbox: %s: %w", v.segment.path, err)
		}
		if number < c.at { // skipped on the way to the record
			continue
		}
		s.from, s.number, s.err = c.at, number, nil
		c.at = number + 1
		if message == nil || readMessage(message, &s.message) != nil {
			s.err = errDamaged
		}
		return nil
	}
}

// aim returns the segment with the next record, or a channel to wait on.
func (c *cursor) aim() (v view, grown <-chan struct{}, err error) {
	q := c.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return v, nil, errClosed
	}
	c.at = max(c.at, q.done) // skips what DropOldest removed
	for _, s := range q.segments {
		if c.at < s.next {
			c.at = max(c.at, s.first) // a gap
			return view{s, s.size, s.next}, nil, nil
		}
	}
	return v, waitFor(&q.grown), nil
}

// has reports whether s is still one of the segments.
func (q *Queue) has(s *segment) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Contains(q.segments, s)
}

// open changes to another segment.
func (c *cursor) open(s *segment) error {
	c.close()
	var f file
	_, err := c.queue.onDisk(c.ctx, func() (err error) {
		f, err = c.queue.fs.Open(s.path, os.O_RDONLY)
		return err
	}, func() {
		if f != nil {
			_ = f.Close()
		}
	})
	switch {
	case err != nil && c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	case err != nil:
		return fmt.Errorf("outbox: %w", err)
	}
	c.segment, c.file, c.left = s, f, retryFor
	c.scan = scanner{file: interruptible{c}, salt: s.salt, next: s.first, window: c.scan.window[:0]}
	return nil
}

// Run reads unreadable sectors again, because a disk that is being reset fails all reads for a
// moment. The limit for each segment bounds the delay by sectors that stay unreadable.
const retryFor, retryEvery = 15 * time.Second, time.Second

// interruptible reads the cursor's file. The cursor's context ends a wait for the disk.
type interruptible struct{ *cursor }

func (c interruptible) ReadAt(b []byte, at int64) (int, error) {
	for {
		began := time.Now()
		n, err := c.readOnce(b, at)
		if c.left <= 0 || !isUnreadable(err) {
			return n, err
		}
		select {
		case <-time.After(retryEvery):
		case <-c.ctx.Done():
			return 0, c.ctx.Err()
		}
		c.left -= time.Since(began)
	}
}

func (c interruptible) readOnce(b []byte, at int64) (int, error) {
	f, n := c.file, 0
	abandoned, err := c.queue.onDisk(c.ctx, func() (err error) {
		n, err = f.ReadAt(b, at)
		return err
	}, func() { _ = f.Close() })
	if abandoned {
		c.cursor.file = nil // closed when the read has ended
	}
	if err != nil && c.ctx.Err() != nil {
		return 0, c.ctx.Err() // not the cause, which could be mistaken for a disk error
	}
	return n, err
}

// onDisk calls read on its own goroutine, one at a time, and returns its error. When ctx ends
// first, it returns ctx's error, and calls late after read.
func (q *Queue) onDisk(ctx context.Context, read func() error, late func()) (abandoned bool, err error) {
	select {
	case q.reading <- struct{}{}:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	var over atomic.Bool // read has ended, or its caller has given up
	done := make(chan error, 1)
	go func() {
		err := read()
		if over.Swap(true) {
			late()
		}
		<-q.reading
		done <- err
	}()
	select {
	case err := <-done:
		return false, err
	case <-ctx.Done():
	}
	if over.Swap(true) {
		return false, <-done
	}
	return true, context.Cause(ctx)
}
