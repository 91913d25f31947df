package sim_test

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
)

// eachSeed runs f in a bubble for each seed, and returns how many ran. least is the least number of
// seeds.
func eachSeed(t *testing.T, least int, f func(t *testing.T, seed uint64)) (runs int) {
	from, to := uint64(1), uint64(max(least, *seeds))
	if *oneSeed != 0 {
		from, to = *oneSeed, *oneSeed
	}
	// A panic ends the process without the name of the test. The traceback shows this label of the
	// goroutine instead.
	t.Setenv("GODEBUG", "tracebacklabels=1,"+os.Getenv("GODEBUG"))
	for seed := from; seed <= to; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			if replayed {
				cryptotest.SetGlobalRandom(t, seed)
			}
			pprof.Do(t.Context(), pprof.Labels("run", t.Name()), func(context.Context) {
				testkit.Bubble(t, func(t *testing.T) { f(t, seed) })
			})
			runs++
		})
	}
	return runs
}

// chronicle records the events of a run and what is wrong with it.
type chronicle struct {
	start time.Time

	mu     sync.Mutex // also guards ledgers of the run
	events []string
	errs   []error
}

func (c *chronicle) event(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, fmt.Sprintf("%14v %s", time.Since(c.start), fmt.Sprintf(format, args...)))
}

// fail records an error; nil is none.
func (c *chronicle) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

func (c *chronicle) failf(format string, args ...any) { c.fail(fmt.Errorf(format, args...)) }

// supervise is an application that opens its clients again whenever they are Disconnected. It ends
// with stop.
func (c *chronicle) supervise(every time.Duration, clients ...*device.Client) (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				for _, client := range clients {
					c.fail(client.Start())
				}
			case <-over:
				return
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

// conclude fails the test if err is not nil. Then, and with -seed, it logs the plan and the events.
func (c *chronicle) conclude(t *testing.T, plan fmt.Stringer, err error) {
	t.Helper()
	if err != nil || *oneSeed != 0 {
		t.Logf("%v\n%s", plan, strings.Join(c.events, "\n"))
	}
	if err != nil {
		t.Error(err)
	}
}
