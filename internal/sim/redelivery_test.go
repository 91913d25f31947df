package sim_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// Redelivered tells the handler that it may have seen a message before: it released the message, or
// the connection was lost before its verdict arrived. A first delivery is not marked.
func TestTheHandlerIsToldOfARedelivery(t *testing.T) {
	withEachEngine(t, func(t *testing.T, e engine) {
		e.needsMessages(t)
		for name, lose := range map[string]bool{"released": false, "the verdict was lost": true} {
			testkit.Run(t, name, func(t *testing.T) {
				h, creds := e.openHub(t)
				type told struct {
					id          string
					redelivered bool
				}
				var mu sync.Mutex
				var got []told
				c, err := device.New(creds, e.make(creds, e.inMemory(h, true)), nil)
				require.NoError(t, err)
				c.HandleMessages(func(_ context.Context, m *transport.Message) error {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, told{m.ID, m.Redelivered})
					if m.ID != "1" || len(got) > 1 {
						return nil
					}
					if lose {
						h.Drop("")
						return nil
					}
					return errors.New("not now")
				})
				defer c.Close()
				require.NoError(t, c.Open(t.Context()))
				require.NoError(t, e.sendC2D(h, "dev-1", hubdata.C2D{MessageID: "1", Body: []byte("x")}))
				time.Sleep(10 * time.Second)
				if !lose {
					require.NoError(t, c.Reconnect()) // over MQTT it is delivered again on the next connection only
				}
				time.Sleep(5 * time.Minute) // over HTTPS the hub's lock expires
				require.NoError(t, e.sendC2D(h, "dev-1", hubdata.C2D{MessageID: "2", Body: []byte("y")}))
				time.Sleep(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				if lose && e.commandQoS == 2 {
					require.Len(t, got, 2, "QoS 2: the verdict counts on the next connection")
				} else {
					require.GreaterOrEqual(t, len(got), 3)
				}
				for i, m := range got {
					// a verdict during a reconnect is lost as well, so the first message may be delivered three
					// times
					want := told{"1", i > 0}
					if i == len(got)-1 {
						want = told{"2", false}
					}
					require.Equal(t, want, m, "%v", got)
				}
			})
		}
	})
}

// Close comes while a handler runs: the hub gets the verdict, and does not deliver the message
// again to the next process.
func TestAVerdictIsNotLostWhenTheClientCloses(t *testing.T) {
	withEachEngine(t, func(t *testing.T, e engine) {
		e.needsMessages(t)
		synctest.Test(t, func(t *testing.T) {
			h, creds := e.openHub(t)
			for range 10 { // the order of goroutines differs
				c, err := device.New(creds, e.make(creds, e.inMemory(h, true)), nil)
				require.NoError(t, err)
				started := make(chan struct{}, 10)
				require.NoError(t, c.HandleMessages(func(context.Context, *transport.Message) error {
					started <- struct{}{}
					time.Sleep(time.Second)
					return nil
				}))
				require.NoError(t, c.Open(t.Context()))
				require.NoError(t, e.sendC2D(h, "dev-1", hubdata.C2D{Body: []byte("x")}))
				<-started
				require.NoError(t, c.Close())
				time.Sleep(5 * time.Minute) // over HTTPS the hub's lock expires
				require.Empty(t, started)
			}
			require.Equal(t, 10, h.CountC2D("dev-1", hubdata.C2DCompleted))
		})
	})
}
