package fleet

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A limiter takes a burst, delays what is beyond it, and refuses the rest.
func TestLimiter(t *testing.T) {
	const second = int64(time.Second)
	l := newLimiter(10, time.Second, time.Second)
	for i := range 10 {
		wait, ok := l.take(0, 1)
		require.True(t, ok, i)
		require.Zero(t, wait, i)
	}
	for i := range int64(10) {
		wait, ok := l.take(0, 1)
		require.True(t, ok, i)
		require.Equal(t, (i+1)*second/10, wait)
	}
	_, ok := l.take(0, 1)
	require.False(t, ok)
	wait, ok := l.take(second, 5)
	require.True(t, ok, "ten have gone through after a second")
	require.Equal(t, second/2, wait)
	_, ok = l.take(second, 10)
	require.False(t, ok, "five are left")
	wait, ok = l.take(100*second, 1000)
	require.True(t, ok, "an idle hub takes a batch of any size")
	require.Equal(t, 99*second, wait)
}

func TestShape(t *testing.T) {
	f := shape{Fault: Fault{At: 100, For: 10, Every: 50, First: 4, Count: 4, Cell: 2}, phases: []int64{0, 20}}
	for _, c := range []struct {
		device     int
		t          int64
		next       int64
		until      int64
		down       bool
		explaining string
	}{
		{3, 105, never, 0, false, "before the selected devices"},
		{8, 105, never, 0, false, "after them"},
		{4, 99, 100, 0, false, "before the first time"},
		{4, 100, 100, 110, true, "at its beginning"},
		{4, 109, 150, 110, true, "until its end"},
		{4, 110, 150, 0, false, "after it"},
		{5, 155, 200, 160, true, "the second time"},
		{6, 105, 120, 0, false, "another cell"},
		{6, 125, 170, 130, true, "another cell, later"},
	} {
		require.Equal(t, c.next, f.next(c.device, c.t), c.explaining)
		until, down := f.during(c.device, c.t)
		require.Equal(t, c.down, down, c.explaining)
		if down {
			require.Equal(t, c.until, until, c.explaining)
		}
	}
}

// Each device comes out in the step of its event, however far away that is.
func TestTheCalendarKeepsEveryDevice(t *testing.T) {
	const step, count = 10, 500
	random := rand.New(rand.NewPCG(1, 2))
	c := newCalendar(step, count)
	devices := make([]device, count)
	last := int64(3 * wheel * wheel * step)
	for i := range devices {
		devices[i].at = random.Int64N(last)
		if i%2 == 0 {
			devices[i].at = random.Int64N(5 * wheel * step)
		}
		c.add(int32(i), devices[i].at, 0)
	}
	seen := 0
	var list []int32
	for n := range last / step {
		if n%wheel != 0 && c.near[n%wheel] == none {
			c.now = n
			continue
		}
		c.advance(devices, n)
		list = c.take(list[:0])
		for _, i := range list {
			require.Equal(t, n, devices[i].at/step)
			seen++
		}
	}
	require.Equal(t, count, seen)
}

// Requests of a step are answered by time, whatever block they come from.
func TestTheFirstToArriveIsServedFirst(t *testing.T) {
	s := &simulation{
		scenario: Scenario{Devices: 2 * blockSize, Hub: Hub{Connects: 1, Burst: 1, Queue: -1}}.withDefaults(),
		rules:    Rules{}.withDefaults(), end: int64(time.Hour),
	}
	s.options, _ = (&Options{}).withDefaults(time.Hour)
	s.prepare()
	require.NoError(t, s.populate())
	require.Len(t, s.blocks, 2)
	s.blocks[0].arrived = []uint64{arrival(2000, 1, 0), arrival(3000, 0, 0)}
	s.blocks[1].arrived = []uint64{arrival(1000, blockSize+5, 0)}
	s.merge(0)
	require.Equal(t, accepted, s.blocks[1].answers[0].outcome)
	require.EqualValues(t, 5, s.blocks[1].answers[0].device)
	require.Equal(t, []outcome{connectRefused, connectRefused},
		[]outcome{s.blocks[0].answers[0].outcome, s.blocks[0].answers[1].outcome})
}

func TestTheDayCurve(t *testing.T) {
	m := Telemetry{Every: 10 * time.Minute, Day: [24]float64{0: 1, 1: 2, 3: 1}}
	minute := int64(time.Minute)
	require.Equal(t, 10*minute, m.after(0))
	require.Equal(t, 65*minute, m.after(60*minute))
	require.Equal(t, 62*minute+minute/2, m.after(55*minute), "five minutes at 1, then five at 2")
	require.Equal(t, 186*minute, m.after(118*minute), "hour 2 has no messages")
	require.Equal(t, 24*60*minute+5*minute, m.after(235*minute), "nor has the rest of the day")
	quiet := Telemetry{Every: time.Hour, Day: [24]float64{0: 1e-9}}
	require.EqualValues(t, never, quiet.after(0))
}
