package main

import (
	"context"
	"sync"

	"github.com/hubline-iot/hubline/testbroker"
)

// A watcher prints a line for each message that the hub stores.
type watcher struct {
	hub *testbroker.Hub
	out *printer

	mu     sync.Mutex // held by reset, start and stop
	cancel context.CancelFunc
	done   chan struct{}
	over   bool
}

// start watches from the beginning of the log.
func (w *watcher) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.startLocked()
}

func (w *watcher) startLocked() {
	if w.over {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel, w.done = cancel, make(chan struct{})
	go func() {
		defer close(w.done)
		seen := 0
		look := func(log []testbroker.Message) bool {
			for ; seen < len(log); seen++ {
				w.out.offer(messageLine(&log[seen]))
			}
			return false
		}
		w.hub.Wait(ctx, look) // until ctx ends or the hub is closed
		w.hub.Wait(ctx, func(log []testbroker.Message) bool { look(log); return true })
	}()
}

// stopLocked prints what is there and ends.
func (w *watcher) stopLocked() {
	if w.cancel != nil {
		w.cancel()
		<-w.done
		w.cancel = nil
	}
}

// stop ends for good.
func (w *watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopLocked()
	w.over = true
}

// reset does what empties the log while nobody looks at it, so that no message is missed and none printed twice.
func (w *watcher) reset(empty func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	running := w.cancel != nil
	w.stopLocked()
	empty()
	if running {
		w.startLocked()
	}
}
