package device_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// When a new policy ends a pause, the status reports the end.
func TestAPauseEndedByANewPolicyIsReportedAsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: func(_ int, it transport.Item) error {
			if it.Msg.ID == "1" {
				return refused(transport.Unavailable)
			}
			return nil
		}}
		c := opened(t, f, &device.Options{RetryPolicy: constant(time.Hour)})
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		synctest.Wait()
		require.Equal(t, device.ReasonPaused, c.Status().Reason)
		require.NoError(t, c.SetRetryPolicy(retrypolicy.NoRetry{}))
		require.NoError(t, c.Send(t.Context(), msg(2)), "flows again")
		time.Sleep(time.Hour * 3)
		require.Equal(t, device.ReasonConnectionOK, c.Status().Reason)
	})
}

// A policy's stop applies to a message whose pause outlived a planned reconnect.
func TestAVetoCountsAfterAReconnectInAPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: refuse(transport.Unavailable)}
		c := opened(t, f, &device.Options{RetryPolicy: constant(time.Hour)})
		pending(t, c, msg(1))
		synctest.Wait()
		require.NoError(t, c.Reconnect())
		synctest.Wait()
		n := len(f.received())
		require.NoError(t, c.SetRetryPolicy(retrypolicy.NoRetry{}))
		synctest.Wait()
		require.Equal(t, n, len(f.received()), "vetoed, yet sent again")
	})
}

// dying is a transport whose first session refuses a message for 30 s and ends at once.
type dying struct {
	sink transport.Sink
	n    int
	die  chan struct{}
	dead chan struct{}
	at   []time.Time
}

func (d *dying) Dial(_ context.Context, cfg *transport.Config) (transport.Session, error) {
	d.sink = cfg.Sink
	d.n++
	d.die, d.dead = make(chan struct{}), make(chan struct{})
	return d, nil
}

func (d *dying) Info() transport.Info { return transport.Info{} }

func (d *dying) Run(ctx context.Context) error {
	defer close(d.dead)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-d.die:
		return lost(transport.Network)
	}
}

func (d *dying) Send(batch []transport.Item) {
	d.at = append(d.at, time.Now())
	for _, it := range batch {
		if d.n == 1 {
			e := refused(transport.Throttled)
			e.RetryAfter = 30 * time.Second
			d.sink.Done(it.Tag, e)
		} else {
			d.sink.Done(it.Tag, nil)
		}
	}
	if d.n == 1 {
		close(d.die)
		<-d.dead
		time.Sleep(time.Millisecond)
	}
}

func (d *dying) Do(*transport.Request) {}

// A Retry-After that arrives with the disconnect counts.
func TestRetryAfterOutlivesAConnectionThatDiesWithTheRefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &dying{}
		c := made(t, creds(), d, nil)
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Send(t.Context(), msg(1)))
		require.GreaterOrEqual(t, d.at[1].Sub(d.at[0]), 30*time.Second)
	})
}
