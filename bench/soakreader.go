package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"
)

// soakReader reads all events with Azure's AMQP library. When its connection ends it goes on after
// the last event of each partition.
type soakReader struct {
	at     *soakAccess
	stop   context.CancelFunc
	links  sync.WaitGroup
	mu     sync.Mutex
	newest []int64 // the highest number read of each device
	read   int
	missed int
}

func startSoakReader(ctx context.Context, at *soakAccess, devices int) *soakReader {
	ctx, stop := context.WithCancel(ctx)
	r := &soakReader{at: at, stop: stop, newest: make([]int64, devices)}
	for partition := range deskPartitions {
		r.links.Go(func() {
			offset := "-1" // the beginning
			for ctx.Err() == nil {
				_ = r.follow(ctx, partition, &offset)
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	return r
}

// follow reads a partition after offset until the connection ends.
func (r *soakReader) follow(ctx context.Context, partition int, offset *string) error {
	dial, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	a := &r.at.AMQP
	conn, err := amqp.Dial(dial, "amqps://"+a.Addr, &amqp.ConnOptions{
		SASLType: amqp.SASLTypePlain(r.at.Policy, r.at.Key), HostName: a.Host, TLSConfig: a.tls(),
		IdleTimeout: 10 * time.Second,
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.NewSession(dial, nil)
	if err != nil {
		return err
	}
	link, err := a.partition(dial, session, partition, *offset)
	if err != nil {
		return err
	}
	for {
		m, err := link.Receive(ctx, nil)
		if err != nil {
			return err
		}
		r.note(m)
		if at, ok := m.Annotations["x-opt-offset"].(string); ok {
			*offset = at
		}
	}
}

func (r *soakReader) note(m *amqp.Message) {
	var i int
	var n int64
	if id, ok := m.Properties.MessageID.(string); ok {
		_, _ = fmt.Sscanf(id, "%d %d", &i, &n)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read++
	if next := r.newest[i] + 1; n >= next {
		r.missed += int(n - next)
		r.newest[i] = n
	}
}

// await waits until the reader has the last message of each device, a minute at most, and stops it.
func (r *soakReader) await(ctx context.Context, last []atomic.Int64) {
	behind := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for i := range last {
			if r.newest[i] < last[i].Load() {
				return true
			}
		}
		return false
	}
	for end := time.Now().Add(time.Minute); behind() && ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	r.stop()
	r.links.Wait()
}

// balance returns how many events were read, how many of them more than once, and how many
// acknowledged messages are missing.
func (r *soakReader) balance(last []atomic.Int64) (read, doubled, lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost = r.missed
	different := 0
	for i := range last {
		lost += int(max(0, last[i].Load()-r.newest[i]))
		different += int(r.newest[i])
	}
	return r.read, r.read - (different - r.missed), lost
}
