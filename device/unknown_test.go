package device_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// oneGate admits one message.
func oneGate() retrypolicy.Policy {
	asked := 0
	return hooked{Policy: retrypolicy.Fixed{Delay: time.Second}, admit: func(retrypolicy.Attempt) retrypolicy.Decision {
		asked++
		return retrypolicy.Decision{Retry: asked == 1}
	}}
}

// The hub may have a message that was in flight when a session ended. Its result says so, however
// the message ends.
func TestAnOutcomeStaysUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		kind    transport.Kind
		options device.Options
		again   error // the hub's answer to the second try
	}{
		"refused for good": {transport.Invalid, device.Options{}, refused(transport.Invalid)},
		"given up by the policy": {transport.RetryExpired, device.Options{MessagePolicy: retrypolicy.NoRetry{}},
			refused(transport.Unavailable)},
		"refused by a gate": {transport.RetryExpired, device.Options{MessagePolicy: oneGate()}, nil},
	} {
		run(t, name, func(t *testing.T) {
			f := &fake{verdict: func(conn int, _ transport.Item) error {
				if conn == 1 {
					return errHold
				}
				return c.again
			}}
			c.options.RetryPolicy = constant(time.Second)
			client, _ := client(t, f, &c.options)
			open(t, client)
			var r device.Receipt
			require.NoError(t, client.Enqueue(t.Context(), msg(1), &r))
			synctest.Wait()
			f.last().kill <- lost(transport.Network)
			err := r.Wait(t.Context())
			require.ErrorIs(t, err, c.kind)
			require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
		})
	}
	run(t, "dropped for another", func(t *testing.T) {
		f := &fake{verdict: hold, dial: failing()}
		c := opened(t, f, &device.Options{MaxMessages: 2, Overflow: device.OverflowDropOldest,
			RetryPolicy: constant(time.Hour)})
		var r [4]device.Receipt
		require.NoError(t, c.Enqueue(t.Context(), msg(1), &r[0]))
		synctest.Wait()
		f.lose(transport.Network, 0)
		for i := range 3 {
			require.NoError(t, c.Enqueue(t.Context(), msg(i+2), &r[i+1]))
		}
		err := r[0].Wait(t.Context())
		require.ErrorIs(t, err, transport.Dropped)
		require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
		err = r[1].Wait(t.Context())
		require.ErrorIs(t, err, transport.Dropped)
		require.NotErrorIs(t, err, transport.ErrOutcomeUnknown, "it was never handed over")
	})
	run(t, "refused at the first try", func(t *testing.T) {
		c := opened(t, &fake{verdict: refuse(transport.Invalid)}, nil)
		err := c.Send(t.Context(), msg(1))
		require.ErrorIs(t, err, transport.Invalid)
		require.NotErrorIs(t, err, transport.ErrOutcomeUnknown)
	})
}

// The result of a message that the hub may have says so, whatever ends the message.
func TestAnUnknownOutcomeIsReportedHoweverTheMessageEnds(t *testing.T) {
	for _, how := range []string{"disconnected", "close", "expired", "given up"} {
		run(t, how, func(t *testing.T) {
			f := &fake{verdict: hold}
			f.dial = upOnce
			c := opened(t, f, nil)
			sent := make(chan error, 1)
			m := msg(1)
			if how == "expired" {
				m.Expires = time.Now().Add(10 * time.Second)
			}
			ctx := within(t, 20*time.Second)
			go func() { sent <- c.Send(ctx, m) }()
			synctest.Wait()
			require.Len(t, f.received(), 1, "the hub has it")
			switch how {
			case "disconnected":
				f.last().kill <- lost(transport.Forbidden)
			case "close":
				_ = c.Close()
			case "expired", "given up":
				f.last().kill <- lost(transport.Network)
			}
			require.ErrorIs(t, <-sent, transport.ErrOutcomeUnknown)
			if how == "given up" {
				require.Equal(t, 1, c.Stats().Queued)
			}
		})
	}
}

// A refusal with unknown outcome is remembered: a caller that gives up later learns that the hub
// may have the message.
func TestARefusalWithAnUnknownOutcome(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			f := &fake{verdict: func(int, transport.Item) error {
				e := refused(transport.Throttled)
				if unknown {
					e = operr.OutcomeUnknown(e)
				}
				return e
			}}
			c := opened(t, f, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // its retry is due after 10 s
			defer cancel()
			err := c.Send(ctx, msg(1))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, unknown, errors.Is(err, transport.ErrOutcomeUnknown))
		})
	}
}
