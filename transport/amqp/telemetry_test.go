package amqp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// A suspended hub refuses every message, and the client keeps its queue.
func TestASuspendedHubKeepsTheQueueFull(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		c, err := device.New(h.CredsWith(t, ""), amqp.New(h.options()), nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		suspended := h.inject(fault.Fault{Kind: fault.RejectMessage, Condition: "com.microsoft:iot-hub-suspended",
			Times: -1})
		const n = 50
		for i := range n {
			require.NoError(t, c.Enqueue(t.Context(), numbered(i), nil))
		}
		time.Sleep(time.Minute)
		require.Equal(t, device.StateDisconnected, c.Status().State)
		require.Zero(t, c.Stats().Refused)
		suspended.Remove()
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Flush(t.Context()))
		requireAll(t, h, "dev-1", n)
		require.NoError(t, c.Close())
	})
}

// A link that is detached repeatedly, with conditions that are not about a message, loses no
// message.
func TestDetachesThatBlameNoMessage(t *testing.T) {
	for _, condition := range []string{
		"amqp:not-allowed", "amqp:illegal-state", "amqp:not-implemented", "amqp:precondition-failed",
		"amqp:frame-size-too-small", "com.microsoft:precondition-failed",
		"com.microsoft:link-creation-conflict", "com.example:odd",
	} {
		t.Run(condition, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				c, err := device.New(h.CredsWith(t, ""), amqp.New(h.options()), nil)
				require.NoError(t, err)
				require.NoError(t, c.Open(t.Context()))
				in := h.inject(fault.Fault{Kind: fault.DetachOnMessage, Condition: condition, Times: 30})
				const n = 20
				for i := range n {
					require.NoError(t, c.Enqueue(t.Context(), numbered(i), nil))
				}
				began := time.Now()
				require.NoError(t, c.Flush(t.Context()))
				require.Equal(t, 30, in.Fired())
				require.Greater(t, time.Since(began), 10*time.Second, "the message policy paces it")
				require.Zero(t, c.Stats().Refused)
				requireAll(t, h, "dev-1", n)
				require.EqualValues(t, 1, h.dials.Load())
				require.NoError(t, c.Close())
			})
		})
	}
}

// The messages of a rejected batch are sent one by one.
func TestARejectedBatchIsSentOneByOne(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		r.requireSends("the link is open")
		r.forget()
		in := h.inject(fault.Fault{Kind: fault.RejectMessage, Condition: "amqp:decode-error"})
		r.send(0, "a", "b", "c")
		time.Sleep(time.Second)
		require.Equal(t, 1, in.Fired(), "one transfer")
		require.Equal(t, []result{{Tag: 0}, {Tag: 1}, {Tag: 2}}, r.sink.AllResults())
		var bodies []string
		for _, m := range h.Messages() {
			bodies = append(bodies, string(m.Body))
		}
		require.Equal(t, []string{"the link is open", "a", "b", "c"}, bodies)
	})
}

// Queued messages share a transfer, and messages beyond a batch are not lost.
func TestBatches(t *testing.T) {
	for _, batch := range []int{1, 2, 100} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				o := h.options()
				o.Batch = batch
				r := h.dev1(t, o)
				large := string(make([]byte, 100_000))
				r.send(0, "a", large, large, large, "b", "c")
				time.Sleep(time.Second)
				require.Len(t, r.sink.AllResults(), 6)
				require.ElementsMatch(t, []result{{Tag: 0}, {Tag: 1}, {Tag: 2}, {Tag: 3}, {Tag: 4}, {Tag: 5}}, r.sink.AllResults())
				require.Len(t, h.Messages(), 6)
			})
		})
	}
}

// AMQP carries the content type and encoding as symbols, which are ASCII. A message with another
// one is refused alone.
func TestAContentTypeThatIsNotASCIIIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		items := hubfixture.Items(0, "a", "b", "c", "d")
		items[1].Msg.ContentType = "text/größe"
		items[2].Msg.ContentEncoding = "\xff"
		r.Send(items)
		time.Sleep(time.Second)
		require.Len(t, h.Messages(), 2)
		fields := map[uint16]string{1: "ContentType", 2: "ContentEncoding"}
		require.Len(t, r.sink.AllResults(), 4)
		for _, d := range r.sink.AllResults() {
			if field := fields[d.Tag]; field == "" {
				require.NoError(t, d.Err)
			} else {
				require.Equal(t, transport.Invalid, transport.KindOf(d.Err), "%v", d.Err)
				require.ErrorContains(t, d.Err, field)
			}
		}
	})
}

// Batches are as small as the link requires, and no message fails as too large.
func TestBatchesFitTheLink(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h, err := testbroker.New(&testbroker.Options{AMQP: testbroker.AMQPOptions{MaxMessageSize: 10_000}})
		require.NoError(t, err)
		defer h.Close()
		d, err := h.AddDevice("dev-1")
		require.NoError(t, err)
		sign, err := transport.SharedKey(d.PrimaryKey)
		require.NoError(t, err)
		r := start(t, amqp.New(&amqp.Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortAMQP)}}),
			&transport.Credentials{Host: h.HostName(),
				DeviceID: "dev-1", Sign: sign})
		bodies := make([]string, 60)
		for i := range bodies {
			bodies[i] = string(make([]byte, 50*i))
		}
		bodies[30] = string(make([]byte, 11_000))
		r.send(0, bodies...)
		time.Sleep(time.Second)
		require.Len(t, r.sink.AllResults(), 60)
		for _, d := range r.sink.AllResults() {
			if d.Tag == 30 {
				require.Equal(t, transport.TooLarge, transport.KindOf(d.Err), "%v", d.Err)
			} else {
				require.NoError(t, d.Err)
			}
		}
		require.Len(t, h.Messages(), 59)
		r.requireAlive()
		r.cancel()
		<-r.over
	})
}

// Outcomes behind an unsettled transfer are reported when it is settled, or when the link ends. In
// the second case only the unsettled message must be sent again.
func TestOutcomesBehindAnUnsettledTransfer(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		o.Batch = 1
		r := h.dev1(t, o)
		h.inject(fault.Fault{Kind: fault.SwallowPuback, After: 1})
		for tag := range 20 {
			r.send(tag, "x")
		}
		time.Sleep(3 * time.Second)
		require.Len(t, r.sink.AllResults(), 19, "the unsettled one is late, and the others wait for it no more")
		h.DetachLinks("dev-1", fault.LinkTelemetry, hubdata.AMQPError{Condition: "amqp:link:detach-forced"})
		time.Sleep(time.Second)
		results := r.sink.AllResults()
		require.Len(t, results, 20)
		for _, d := range results {
			if d.Tag == 1 {
				require.Equal(t, transport.Unavailable, transport.KindOf(d.Err))
				require.ErrorIs(t, d.Err, transport.ErrOutcomeUnknown)
			} else {
				require.NoError(t, d.Err, "message %d", d.Tag)
			}
		}
	})
}

// The connection is lost while one transfer is unsettled: only its message is sent again.
func TestOutcomesThatArrivedBeforeALoss(t *testing.T) {
	for range 10 { // the outcomes and the loss are noticed on several goroutines
		bubble(t, func(t *testing.T, h *hub) {
			o := h.options()
			o.Batch = 1
			c, err := device.New(h.CredsWith(t, ""), amqp.New(o), nil)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.Open(t.Context()))
			require.NoError(t, c.Send(t.Context(), numbered(1000)))
			h.inject(fault.Fault{Kind: fault.SwallowPuback})
			for i := range 100 {
				require.NoError(t, c.Enqueue(t.Context(), numbered(i), nil))
			}
			time.Sleep(100 * time.Millisecond)
			h.inject(fault.Fault{Kind: fault.DropBeforePublish})
			require.NoError(t, c.Enqueue(t.Context(), numbered(2000), nil))
			require.NoError(t, c.Flush(t.Context()))
			require.Len(t, h.Messages(), 1+100+1+1, "one message is sent twice")
		})
	}
}

// Close reports a message whose outcome has arrived as acknowledged.
func TestOutcomesThatArrivedBeforeClose(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		o.Batch = 1
		c, err := device.New(h.CredsWith(t, ""), amqp.New(o), nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		h.inject(fault.Fault{Kind: fault.SwallowPuback})
		for i := range 50 {
			require.NoError(t, c.Enqueue(t.Context(), numbered(i), nil))
		}
		time.Sleep(100 * time.Millisecond)
		require.Len(t, h.Messages(), 50)
		_ = c.Close()
		require.EqualValues(t, 49, c.Stats().Acknowledged)
	})
}

// The hub never settles one transfer of a device: the other devices of a Mux are served.
func TestAnUnsettledTransferDoesNotFillTheWindowOfAMux(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		o.Batch = 1
		mux := amqp.NewMux(o)
		mine, other := start(t, mux, h.device(t, "mine")), start(t, mux, h.device(t, "other"))
		h.inject(fault.Fault{Kind: fault.SwallowPuback, Device: "mine"})
		for tag := range 64 {
			mine.send(tag, strings.Repeat("x", 1000))
			time.Sleep(10 * time.Millisecond)
		}
		other.send(7, "x")
		time.Sleep(10 * time.Second)
		require.Len(t, other.sink.AllResults(), 1)
		require.Len(t, mine.sink.AllResults(), 63)
	})
}

// The message for which the hub detaches the link fails, and the others arrive.
func TestTheMessageThatEndsLinksFails(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		o.Batch = 1
		r := h.dev1(t, o)
		h.inject(fault.Fault{Kind: fault.SwallowPuback, After: 0, Times: 2})
		h.inject(fault.Fault{Kind: fault.DetachOnMessage, After: 2, Condition: "amqp:link:message-size-exceeded"})
		r.send(0, "a", "b", "bad")
		time.Sleep(time.Second)
		for _, d := range r.sink.AllResults() {
			require.Equal(t, transport.Unavailable, transport.KindOf(d.Err), "nobody is blamed yet: %v", d.Err)
			require.ErrorIs(t, d.Err, transport.ErrOutcomeUnknown, "the hub has two of them")
		}
		require.Len(t, r.sink.AllResults(), 3)
		r.forget()
		// Twice: the bad message is among several at first, and is sent again over the next link.
		h.inject(fault.Fault{Kind: fault.DetachOnMessage, After: 2, Times: 2,
			Condition: "amqp:link:message-size-exceeded"})
		r.send(0, "a", "b", "bad", "d")
		time.Sleep(time.Second)
		kinds := map[uint16]error{}
		for _, d := range r.sink.AllResults() {
			kinds[d.Tag] = d.Err
		}
		require.NoError(t, kinds[0])
		require.NoError(t, kinds[1])
		require.Equal(t, transport.TooLarge, transport.KindOf(kinds[2]))
		require.Equal(t, transport.Unavailable, transport.KindOf(kinds[3]))
	})
}

// The message before the one for which the hub detaches the link is in flight, too, and must not
// fail.
func TestTheMessageBeforeTheBadOneIsNotBlamed(t *testing.T) {
	for range 10 {
		bubble(t, func(t *testing.T, h *hub) {
			o := h.options()
			o.Batch = 1
			r := h.dev1(t, o)
			h.inject(fault.Fault{Kind: fault.SwallowPuback})
			h.inject(fault.Fault{Kind: fault.DetachOnMessage, After: 1, Condition: "amqp:link:message-size-exceeded"})
			r.send(0, "good", "bad")
			time.Sleep(time.Second)
			for _, d := range r.sink.AllResults() {
				require.Equal(t, transport.Unavailable, transport.KindOf(d.Err), "message %d: %v", d.Tag, d.Err)
			}
			require.Len(t, r.sink.AllResults(), 2)
		})
	}
}

// Without credit messages fail in time, and the link is attached again.
func TestCreditIsWithheld(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		h.inject(fault.Fault{Kind: fault.WithholdCredit, Link: fault.LinkTelemetry})
		began := time.Now()
		r.send(0, "a", "b")
		for len(r.sink.AllResults()) < 2 {
			time.Sleep(100 * time.Millisecond)
		}
		require.InDelta(t, 20, time.Since(began).Seconds(), 0.2)
		for _, d := range r.sink.AllResults() {
			require.Equal(t, transport.Throttled, transport.KindOf(d.Err))
		}
		require.Empty(t, h.Messages())
		r.requireSends("c")
		require.EqualValues(t, 1, h.dials.Load())
	})
}

func TestCreditComesLate(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		h.inject(fault.Fault{Kind: fault.WithholdCredit, Delay: 15 * time.Second, Link: fault.LinkTelemetry})
		began := time.Now()
		r.requireSends("a")
		require.InDelta(t, 15, time.Since(began).Seconds(), 0.2)
	})
}
