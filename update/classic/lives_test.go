package classic_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
	"github.com/hubline-iot/hubline/update/agent"
)

var manyLives = flag.Int("lives", 10, "how many lives TestEachLifeEndsWithTheLastDeployment tries")

// Whatever happens to device, connection and deployments: the last deployment is installed in the
// end, and each one that has ended has one final report.
func TestEachLifeEndsWithTheLastDeployment(t *testing.T) {
	seeds := *manyLives
	if testkit.Long() {
		seeds = max(seeds, 100)
	}
	for seed := range seeds {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			lives(t, func(d *tractor) {
				l := &life{d, rand.New(rand.NewPCG(uint64(seed), 0)), nil, nil}
				pace := rand.New(rand.NewPCG(uint64(seed), 1))
				d.work = func(ctx context.Context) error {
					select {
					case <-time.After(time.Duration(pace.Int64N(int64(2 * time.Minute)))):
						return nil
					case <-ctx.Done(): // killed, or dropped
						return ctx.Err()
					}
				}
				for range 8 {
					l.happen()
					l.runFor(time.Duration(l.rand.Int64N(int64(5 * time.Minute))))
				}
				l.end(t)
			})
		})
	}
}

type life struct {
	*tractor
	rand      *rand.Rand
	workflows []string
	faults    []*testbroker.Injected
}

// runFor runs the program, and kills it unless it ends itself.
func (l *life) runFor(d time.Duration) {
	stop := l.restart()
	time.Sleep(d)
	if err := stop(); !errors.Is(err, agent.ErrRestart) {
		require.ErrorIs(l.t, err, context.Canceled)
	}
}

var twinFaults = []fault.Kind{fault.DropBeforeTwin, fault.DropAfterTwin, fault.RefuseTwin, fault.SwallowTwin,
	fault.DuplicateTwin, fault.SwallowDesired}

// happen does something to the device.
func (l *life) happen() {
	latest := ""
	if n := len(l.workflows); n > 0 {
		latest = l.workflows[n-1]
	}
	switch l.rand.IntN(8) {
	case 0, 1:
		l.workflows = append(l.workflows, l.deployVersion([]string{"1.1", "1.2"}[l.rand.IntN(2)]))
	case 2:
		_ = l.updates.Withdraw(latest) // there may be none
	case 3:
		_ = l.updates.Retry(latest)
	case 4:
		_, err := l.SetDesired(deviceID, l.desired())
		require.NoError(l.t, err)
	case 5:
		l.fail = nil
		if l.rand.IntN(2) == 0 {
			l.fail = io.ErrShortWrite
		}
	default:
		kind := twinFaults[l.rand.IntN(len(twinFaults))]
		l.faults = append(l.faults, l.Inject(fault.Fault{Kind: kind, Device: deviceID, After: l.rand.IntN(4),
			Times: 1 + l.rand.IntN(3)}))
	}
}

// end lets the last deployment succeed.
func (l *life) end(t *testing.T) {
	for _, f := range l.faults {
		f.Remove()
	}
	l.fail = nil
	l.publishLarge("9.9")
	last := l.deployVersion("9.9")
	state := func() updatedata.Device { return l.updates.Device(deviceID) }
	for range 10 {
		l.runFor(time.Hour)
		d := state()
		if w := d.Workflow(last); w.Outcome() == updatedata.OutcomeSucceeded {
			break
		}
	}
	d := state()
	w := d.Workflow(last)
	require.Equal(t, updatedata.OutcomeSucceeded, w.Outcome(), "%+v", d)
	require.Equal(t, "image 9.9", l.image)
	require.Contains(t, l.reported("agent"), `"state":0,"workflow":{"action":3,"id":"`+last+`"}`)
	for _, w := range d.Workflows {
		require.LessOrEqual(t, l.finals(w.ID), 1, w.ID)
	}
	// A program that has nothing to do leaves the twin alone.
	sent := l.patches()
	l.runFor(72 * time.Hour)
	require.Equal(t, sent, l.patches())
	for _, r := range l.TwinLog(deviceID) {
		require.True(t, r.Operation != hubdata.TwinPatch || r.Status != 400, "%s", r.Body)
	}
}
