package device_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/transport"
)

// losses returns the statuses of lost connections and failed attempts.
func losses(w *watch) (all []device.Status) {
	for _, s := range w.list() {
		if s.Reason == device.ReasonConnectionLost || s.Reason == device.ReasonAttemptFailed {
			all = append(all, s)
		}
	}
	return all
}

func TestAStatusPrintsAsOneLine(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, w := client(t, f, nil)
		require.Equal(t, "disconnected (not opened)", fmt.Sprint(c.Status()))
		open(t, c)
		require.Equal(t, "connected (connection ok)", fmt.Sprintf("%v", c.Status()))
		f.lose(transport.Network, 0)
		s := losses(w)[0]
		require.Equal(t, "retrying (connection lost): "+s.Err.Error()+"; retry 1 in 100ms; connections come back", s.String())
	})
}

func TestTheHintOfAClientThatWasNeverConnectedNamesWhatToCheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: func(n int, _ context.Context) error {
			switch n {
			case 1:
				return lost(transport.Network)
			case 2:
				return lost(transport.Timeout)
			case 3:
				return lost(transport.Throttled)
			}
			return nil
		}}
		c, w := client(t, f, nil)
		open(t, c)
		f.lose(transport.Network, 0)
		const never = "no connection has worked yet; check host name, port, proxy and firewall"
		var hints []string
		for _, s := range losses(w) {
			hints = append(hints, s.Hint())
		}
		require.Equal(t, []string{never, never, errfilter.OfKind(transport.Throttled).Hint(), "connections come back"}, hints)
	})
}

// Before the first attempt, too, which another client's failures delay.
func TestTheHintOfAHeldClientNamesTheRetryPolicy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		breaker, err := budget.NewBreaker(&budget.BreakerOptions{Failures: 1, Wait: true})
		require.NoError(t, err)
		p := breaker.Wrap(retrypolicy.Fixed{Delay: time.Second})
		f := &fake{dial: func(n int, _ context.Context) error {
			if n == 1 {
				return lost(transport.Network)
			}
			return nil
		}}
		c, w := client(t, f, &device.Options{RetryPolicy: p})
		require.NoError(t, c.Start())
		synctest.Wait()
		other, otherWatch := client(t, &fake{}, &device.Options{RetryPolicy: p})
		open(t, other)
		open(t, c)
		for _, all := range [][]device.Status{w.list(), otherWatch.list()} {
			held := slices.IndexFunc(all, func(s device.Status) bool { return s.Reason == device.ReasonHeld })
			require.GreaterOrEqual(t, held, 0)
			require.Equal(t, "the retry policy, such as a breaker or limiter, delays the next attempt", all[held].Hint())
		}
	})
}

// Hubs rarely say why they end a connection; a peer that does is believed, at once.
func TestACauseThatThePeerNamesIsTheSuspect(t *testing.T) {
	taken := &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection, Op: transport.OpRun,
		Err: fmt.Errorf("code 0x8E: %w", transport.ErrTakenOver)}
	silent := lost(transport.Network)
	type failure struct {
		dial bool          // of an attempt, not of a connection
		up   time.Duration // of the connection before
		err  error
		want device.Suspect
	}
	for name, failures := range map[string][]failure{
		"at the first loss": {{false, 0, taken, device.SuspectSecondDevice}},
		"a later loss is silent": {{false, 0, taken, device.SuspectSecondDevice},
			{false, 0, silent, device.SuspectSecondDevice}},
		"a later loss names another cause": {{false, 0, taken, device.SuspectSecondDevice},
			{false, 0, lost(transport.Quota), device.SuspectQuotaUsedUp}},
		"a silent attempt":  {{false, 0, taken, device.SuspectSecondDevice}, {true, 0, silent, device.SuspectNone}},
		"a refused attempt": {{false, 0, silent, device.SuspectNone}, {true, 0, taken, device.SuspectSecondDevice}},
		"a connection that had lasted": {{false, time.Hour, taken, device.SuspectSecondDevice},
			{false, 0, silent, device.SuspectNone}},
	} {
		run(t, name, func(t *testing.T) {
			var dial error
			f := &fake{dial: func(int, context.Context) error {
				err := dial
				dial = nil
				return err
			}}
			c, w := client(t, f, nil)
			var got, want []device.Suspect
			for i, one := range failures {
				want = append(want, one.want)
				if one.dial {
					continue // it follows the loss before
				}
				open(t, c)
				time.Sleep(one.up)
				if i+1 < len(failures) && failures[i+1].dial {
					dial = failures[i+1].err
				}
				f.last().kill <- one.err
				synctest.Wait()
				open(t, c)
			}
			for _, s := range losses(w) {
				got = append(got, s.Suspect)
			}
			require.Equal(t, want, got)
		})
	}
}

// A failure that is not repeated needs its own advice, whatever was suspected before.
func TestTheHintFollowsTheSuspectForFailuresThatAreRetried(t *testing.T) {
	err := &transport.Error{Kind: transport.Network, Err: errors.New("EOF")}
	for _, suspect := range []device.Suspect{device.SuspectSecondDevice, device.SuspectBadMessage,
		device.SuspectQuotaUsedUp, device.SuspectUnstable} {
		require.Contains(t, device.Status{Err: err, Suspect: suspect}.Hint(), suspect.String()+"; ")
		for _, kind := range []transport.Kind{transport.Unauthorized, transport.Throttled, transport.RetryExpired} {
			require.Equal(t, errfilter.OfKind(kind).Hint(), device.Status{Err: kind, Suspect: suspect}.Hint())
		}
	}
	require.Equal(t, "connections come back", device.Status{Err: err}.Hint())
	require.Empty(t, device.Status{Suspect: device.SuspectUnstable}.Hint())
}
