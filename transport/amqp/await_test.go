package amqp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	hubfault "github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// The wait for the answer to a subscription ends with its links and with its session: the
// connection would count as silent for all its devices.
func TestTheWaitForASubscriptionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, c, _ := connected(t)
		audience, text := token(t, h, "dev-a", "")
		require.NoError(t, c.tokens.put(t.Context(), audience, text, nil))
		s, end := serving(t, h, c, "dev-a")
		wait := func() *exchange {
			synctest.Wait()
			c.window.mu.Lock()
			defer c.window.mu.Unlock()
			return c.window.first
		}
		lose := func() {
			time.Sleep(shortLife)
			require.Equal(t, 1, h.DetachLinks("dev-a", hubfault.LinkTwinSender, hubdata.AMQPError{}))
		}
		swallow := hubfault.Fault{Kind: hubfault.SwallowTwin, Operation: hubdata.TwinSubscribe, Times: 2}
		h.Inject(swallow)
		s.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureDesired})
		first := wait()
		require.NotNil(t, first)
		lose()
		second := wait()
		require.NotNil(t, second)
		require.NotSame(t, first, second)
		lose()
		require.Nil(t, wait(), "it was answered")
		h.Inject(swallow)
		lose()
		require.NotNil(t, wait())
		end()
		require.Nil(t, wait())
	})
}
