package mqtt

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// TestNothingIsLostOverManyBrokenSessions sends a row of messages over sessions that a faulty hub
// keeps breaking, and sends messages in flight again. A message that is done must have arrived, and
// messages must arrive in order on each connection.
func TestNothingIsLostOverManyBrokenSessions(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { breakSessions(t, seed+1) })
		})
	}
}

func breakSessions(t *testing.T, seed uint64) {
	const total = 400
	hub, err := testbroker.New(&testbroker.Options{Seed: seed})
	require.NoError(t, err)
	defer hub.Close()
	dev, err := hub.AddDevice("dev-1")
	require.NoError(t, err)
	for kind, chance := range map[fault.Kind]float64{
		fault.DropDuringPublish: 0.01, fault.DropBeforePublish: 0.01, fault.DropAfterPublish: 0.01,
		fault.DropAfterPuback: 0.01, fault.SwallowPuback: 0.002, fault.RefuseConnect: 0.2,
		fault.DropConnect: 0.2, fault.SwallowConnack: 0.1,
	} {
		hub.Inject(fault.Fault{Kind: kind, Times: -1, Probability: chance})
	}
	transportUnderTest := New(&Options{Network: netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortMQTT)}})
	creds := credsOf(t, dev, dev.PrimaryKey)

	row := &row{total: total, done: make([]bool, total), sent: make([]bool, total)}
	sessions := 0
	for !row.complete() {
		ctx, cancel := context.WithCancel(context.Background())
		row.begin()
		limit := time.AfterFunc(30*time.Second, cancel)
		s, err := transportUnderTest.Dial(ctx, &transport.Config{Creds: creds, Window: row.window(), Sink: row})
		limit.Stop()
		if err != nil {
			require.True(t, errfilter.Retryable(err), "%v", err)
			time.Sleep(time.Second)
			cancel()
			continue
		}
		sessions++
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()
		idle := 0
		for len(ran) == 0 && !row.complete() && idle < 100 {
			if batch := row.take(); len(batch) > 0 {
				s.Send(batch)
			} else {
				idle++ // the faulty hub may have dropped an acknowledgement
				time.Sleep(100 * time.Millisecond)
			}
		}
		cancel()
		err = <-ran
		require.Error(t, err)
		row.end(t)
	}

	arrived := make([]bool, total)
	last := map[uint64]int{}
	for _, m := range hub.Messages() {
		var i int
		_, err := fmt.Sscanf(m.MessageID, "%d", &i)
		require.NoError(t, err)
		if before, ok := last[m.Connection]; ok && i <= before {
			t.Errorf("connection %d: message %d came after %d", m.Connection, i, before)
		}
		last[m.Connection] = i
		require.Equal(t, m.Dup || !arrived[i], true, "message %d came again without DUP", i)
		arrived[i] = true
	}
	require.False(t, slices.Contains(arrived, false), "a message is done and did not arrive")
	require.Greater(t, sessions, 1)
}

// row is a row of numbered messages to send, and the sink.
type row struct {
	total int

	mu       sync.Mutex
	done     []bool
	sent     []bool
	next     int
	inFlight map[uint16]int
	faults   []string
	over     bool
}

func (r *row) window() int { return 16 }

// begin starts again with the messages that are not done.
func (r *row) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next, r.inFlight, r.over = 0, map[uint16]int{}, false
}

func (r *row) end(t *testing.T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	require.Empty(t, r.faults)
}

func (r *row) complete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.Contains(r.done, false)
}

// take returns the messages that may be sent now.
func (r *row) take() (batch []transport.Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; r.next < r.total && len(r.inFlight) < r.window(); r.next++ {
		if r.done[r.next] {
			continue
		}
		tag := uint16(0)
		for ; ; tag++ {
			if _, taken := r.inFlight[tag]; !taken {
				break
			}
		}
		r.inFlight[tag] = r.next
		id := fmt.Sprint(r.next)
		batch = append(batch, transport.Item{Tag: tag, Again: r.sent[r.next], Msg: &transport.Message{ID: id,
			Body: []byte(id)}})
		r.sent[r.next] = true
	}
	return batch
}

func (r *row) Done(tag uint16, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, ok := r.inFlight[tag]
	switch {
	case r.over:
		r.faults = append(r.faults, "Done after Run")
	case !ok:
		r.faults = append(r.faults, fmt.Sprint("Done for tag ", tag, ", not in flight"))
	case err != nil:
		r.faults = append(r.faults, err.Error())
	default:
		delete(r.inFlight, tag)
		r.done[i] = true
	}
}

func (r *row) Reply(uint32, transport.Reply)    {}
func (r *row) Deliver(*transport.Delivery) bool { return false }
