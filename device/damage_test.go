package device_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// damagedHello is a refusal that may be caused by damaged bytes.
var damagedHello = &transport.Error{
	Kind: transport.Unsupported, Scope: transport.ScopeConnection, Op: transport.OpDial, Err: transport.ErrMaybeDamaged,
}

// Each connection resets the count of consecutive failures that may be damage.
func TestAConnectionResetsTheCountOfDamage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const row = errfilter.MaxDamage
		f := &fake{
			dial: func(n int, _ context.Context) error {
				if n%(row+1) == 0 {
					return nil
				}
				return damagedHello
			},
			expires: func() time.Time { return time.Now().Add(time.Hour) }, // a planned reconnect is not a failure
		}
		c := opened(t, f, nil)
		time.Sleep(3 * time.Hour)
		require.GreaterOrEqual(t, len(f.dialTimes()), 3*(row+1))
		require.NotEqual(t, device.StateDisconnected, c.Status().State, "%v", c.Status().Err)
	})
}

// A session that ends with a refusal, as a second connection may, is replaced.
func TestDamageDuringASessionIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, c := connected(t, nil)
		f.last().kill <- damagedHello
		time.Sleep(time.Minute)
		require.Equal(t, device.StateConnected, c.Status().State)
		require.Len(t, f.dialTimes(), 2)
	})
}

// Endless refusals end the client with their Kind; TryAgainAfter starts from scratch.
func TestDamageWithoutEndEndsTheClient(t *testing.T) {
	always := func(int, context.Context) error { return damagedHello }
	run(t, "Open", func(t *testing.T) {
		f := &fake{dial: always}
		c, w := client(t, f, nil)
		err := c.Open(t.Context())
		require.ErrorIs(t, err, transport.Unsupported)
		require.False(t, errfilter.Retryable(err))
		require.Len(t, f.dialTimes(), 1+errfilter.MaxDamage)
		retried := 0
		for _, s := range w.list() {
			if s.Reason == device.ReasonAttemptFailed {
				require.ErrorIs(t, s.Err, transport.Network)
				require.True(t, errors.Is(s.Err, transport.ErrMaybeDamaged))
				retried++
			}
		}
		require.Equal(t, errfilter.MaxDamage, retried)
	})
	run(t, "TryAgainAfter", func(t *testing.T) {
		f := &fake{dial: always}
		started(t, f, &device.Options{TryAgainAfter: time.Hour})
		time.Sleep(90 * time.Minute)
		require.Len(t, f.dialTimes(), 2*(1+errfilter.MaxDamage))
	})
}

// So does the start after a callback that panicked.
func TestDamageBeforeAPanicIsNotCountedAfterIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: func(int, context.Context) error { return damagedHello }}
		decisions := 0
		c, _ := client(t, f, &device.Options{TryAgainAfter: time.Hour, Trace: &device.Trace{
			Decision: func(retrypolicy.Attempt, retrypolicy.Decision) {
				if decisions++; decisions == errfilter.MaxDamage {
					panic("oh dear")
				}
			},
		}})
		require.NoError(t, c.Start())
		time.Sleep(90 * time.Minute)
		require.Len(t, f.dialTimes(), errfilter.MaxDamage+1+errfilter.MaxDamage)
	})
}
