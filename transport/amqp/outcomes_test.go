package amqp_test

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// goroutines counts the goroutines of the bubble. The process has others, such as for finalizers.
func goroutines() int {
	all := make([]byte, 1<<20)
	return strings.Count(string(all[:runtime.Stack(all, true)]), ", synctest bubble ")
}

// Links have no goroutines.
func TestAnIdleSessionHasFewGoroutines(t *testing.T) {
	for name, last := range map[string]func(h *hub, r *running){
		"accepted": func(_ *hub, r *running) { r.requireSends("x") },
		"a rejected batch, taken apart": func(h *hub, r *running) {
			h.inject(fault.Fault{Kind: fault.RejectMessage, Condition: "amqp:not-allowed"})
			r.forget()
			r.send(0, "a", "b", "c")
			for len(r.sink.AllResults()) < 3 {
				time.Sleep(time.Millisecond)
			}
		},
		"the link was lost": func(h *hub, r *running) {
			r.requireSends("x")
			h.DetachLinks("dev-1", fault.LinkTelemetry, hubdata.AMQPError{})
			time.Sleep(time.Millisecond)
			r.requireSends("y")
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				r := h.dev1(t, h.options())
				r.requireSends("x")
				synctest.Wait()
				busy := goroutines()
				for range 3 {
					last(h, r)
					synctest.Wait()
					require.Equal(t, busy, goroutines())
				}
			})
		})
	}
}

func TestALateOutcomeIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		h.inject(fault.Fault{Kind: fault.SlowPuback, Delay: 100 * time.Second, Times: 2})
		require.NoError(t, r.outcome("x", 200*time.Second))
		r.forget()
		r.send(0, "y")
		time.Sleep(50 * time.Second)
		require.Empty(t, r.sink.AllResults())
		h.DetachLinks("dev-1", fault.LinkTelemetry, hubdata.AMQPError{})
		time.Sleep(time.Second)
		require.Len(t, r.sink.AllResults(), 1)
		require.Equal(t, transport.Unavailable, transport.KindOf(r.sink.AllResults()[0].Err),
			"the loss of the link is noticed, too")
	})
}

// With hundreds of transfers in flight and outcomes out of order, some at once and others after a
// second, each message gets its own outcome.
func TestManyOutcomesOutOfOrder(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		const n = 400
		o := h.options()
		o.Batch = 1
		r := h.dev1(t, o)
		h.inject(fault.Fault{Kind: fault.RejectMessage, Condition: "amqp:not-allowed", Times: -1, Probability: 0.3})
		h.inject(fault.Fault{Kind: fault.SlowPuback, Delay: time.Second, Times: -1})
		for tag := 0; tag < n; tag += 40 {
			bodies := make([]string, 40)
			for i := range bodies {
				bodies[i] = strconv.Itoa(tag + i)
			}
			r.send(tag, bodies...)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		taken := map[string]bool{}
		for _, m := range h.Messages() {
			taken[string(m.Body)] = true
		}
		require.Greater(t, n-len(taken), n/10, "the hub rejected too few for a test")
		results := r.sink.AllResults()
		require.Len(t, results, n)
		seen := map[uint16]bool{}
		for _, d := range results {
			require.False(t, seen[d.Tag], "message %d has two results", d.Tag)
			seen[d.Tag] = true
			require.Equal(t, taken[strconv.Itoa(int(d.Tag))], d.Err == nil, "message %d: %v", d.Tag, d.Err)
		}
	})
}
