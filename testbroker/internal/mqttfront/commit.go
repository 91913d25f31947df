package mqttfront

import "sync"

// mostUncommitted is how many bytes of PUBACKs may wait for the store before the hub reads no more
// of the client. Those that wait for the write in progress count.
const mostUncommitted = 16 << 10

// commits are the PUBACKs of messages that may not be in the hub's store yet. A goroutine waits for
// the store and sends them, while the connection's goroutine reads on: messages that arrive during
// a wait share the next one.
type commits struct {
	mu      sync.Mutex
	acks    []byte
	waiting int           // bytes: acks, and those that the goroutine has taken
	done    chan struct{} // closed when the goroutine ends; nil = there is none
}

// wait waits until all PUBACKs were sent.
func (k *commits) wait() {
	k.mu.Lock()
	done := k.done
	k.mu.Unlock()
	if done != nil {
		<-done
	}
}

// commit is flush for a client that may send more at once: it does not wait for the hub's store,
// unless the client is far ahead of it.
func (c *client) commit() {
	if !c.unsaved || !c.Hub.Records.Stores() || c.Hub.Faults.Any() {
		c.flush()
		return
	}
	if len(c.acked) == 0 {
		return
	}
	k := &c.commits
	k.mu.Lock()
	k.acks = append(k.acks, c.acked...)
	k.waiting += len(c.acked)
	far := k.waiting > mostUncommitted
	start := k.done == nil
	if start {
		k.done = make(chan struct{})
	}
	k.mu.Unlock()
	c.acked, c.unsaved = c.acked[:0], false
	if start {
		c.Hub.Wg.Go(c.sendCommitted)
	}
	if far {
		k.wait()
	}
}

// sendCommitted is a goroutine that exists while PUBACKs wait for the store. The hub's Close waits
// for it.
func (c *client) sendCommitted() {
	k := &c.commits
	var now []byte
	for {
		k.mu.Lock()
		k.waiting -= len(now)
		now, k.acks = k.acks, now[:0]
		if len(now) == 0 {
			close(k.done)
			k.acks, k.done = nil, nil
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
		c.Hub.Records.Saved()
		c.Write(now)
	}
}
