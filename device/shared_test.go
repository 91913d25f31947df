package device_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// The delay after a failed dial ends when the transport reports that the cause has passed. The
// random spread is kept.
func TestADelayEndsWhenTheCauseHasPassed(t *testing.T) {
	for _, row := range []struct {
		name   string
		after  time.Duration // when the cause passes; negative: never
		spread time.Duration // random draw out of twice as much
		want   time.Duration // from the failure to the next dial
	}{
		{"never", -1, 0, time.Hour},
		{"during the delay", 2 * time.Second, 0, 2 * time.Second},
		{"before the delay", 0, 0, 0},
		{"during the delay, with a spread", 2 * time.Second, 7 * time.Second, 7 * time.Second},
		{"after the spread", 9 * time.Second, 7 * time.Second, 9 * time.Second},
	} {
		run(t, row.name, func(t *testing.T) {
			f := &fake{dial: func(n int, _ context.Context) error {
				if n > 1 {
					return nil
				}
				passed := make(chan struct{})
				if row.after == 0 {
					close(passed)
				} else if row.after > 0 {
					time.AfterFunc(row.after, func() { close(passed) })
				}
				return &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection, Passed: passed}
			}}
			opened(t, f, &device.Options{
				RetryPolicy:     constant(time.Hour),
				ReconnectSpread: 2 * row.spread, Rand: func() uint64 { return uint64(row.spread) },
			})
			require.Equal(t, row.want, f.dials[1].Sub(f.dials[0]))
		})
	}
}

// slowDial is a transport with a slow dial that makes progress each second for a part of its time.
type slowDial struct {
	*fake
	takes, moves time.Duration
}

func (s slowDial) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	for began := time.Now(); time.Since(began) < s.takes; {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if time.Since(began) <= s.moves {
			cfg.Progress()
		}
	}
	return s.fake.Dial(ctx, cfg)
}

// A dial that makes progress does not time out. It times out DialTimeout after its last progress.
func TestADialThatMakesProgressGoesOn(t *testing.T) {
	for _, row := range []struct {
		takes, moves, fails time.Duration
	}{
		{takes: 29 * time.Second},
		{takes: 300 * time.Second, fails: 30 * time.Second},
		{takes: 300 * time.Second, moves: 290 * time.Second},
		{takes: 300 * time.Second, moves: 100 * time.Second, fails: 130 * time.Second},
	} {
		bubble(t, func(t *testing.T) {
			failed := make(chan time.Time, 100)
			c, err := device.New(creds(), slowDial{&fake{}, row.takes, row.moves}, &device.Options{
				RetryPolicy: constant(time.Hour),
				OnStatus: func(s device.Status) {
					if s.Reason == device.ReasonAttemptFailed {
						failed <- time.Now()
					}
				},
			})
			require.NoError(t, err)
			defer c.Close()
			began := time.Now()
			require.NoError(t, c.Start())
			time.Sleep(row.takes + time.Second)
			if row.fails == 0 {
				require.Empty(t, failed)
				require.Equal(t, device.StateConnected, c.Status().State)
				return
			}
			require.Len(t, failed, 1)
			require.Equal(t, row.fails, (<-failed).Sub(began))
		})
	}
}
