package device

// flusher is a waiting Flush.
type flusher struct {
	upTo uint64
	done chan error // capacity 1
}

// flush returns a channel that gets nil when every message accepted so far has its result, or an
// error when the client stops trying before that. The channel is nil when there is nothing to wait
// for.
func (b *outbox) flush() (done chan error, err error) {
	b.mu.Lock()
	switch {
	case b.head == none:
	case b.halted != nil:
		err = b.halted
	default:
		done = make(chan error, 1)
		b.flushers = append(b.flushers, flusher{b.seq, done})
	}
	b.mu.Unlock()
	return done, err
}

// unflush removes a flusher whose caller gave up.
func (b *outbox) unflush(done chan error) {
	b.mu.Lock()
	for i := range b.flushers {
		if b.flushers[i].done == done {
			b.flushers = append(b.flushers[:i], b.flushers[i+1:]...)
			break
		}
	}
	b.mu.Unlock()
}

// releaseFlushersLocked ends each Flush whose messages all have their results.
func (b *outbox) releaseFlushersLocked() {
	kept := b.flushers[:0]
	for _, f := range b.flushers {
		if b.head == none || b.slots[b.head].seq > f.upTo {
			f.done <- nil
		} else {
			kept = append(kept, f)
		}
	}
	b.flushers = kept
}
