package fleet

import (
	"math/rand/v2"
	"slices"
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
		down       bool
		explaining string
	}{
		{3, 105, never, false, "before the selected devices"},
		{8, 105, never, false, "after them"},
		{4, 99, 100, false, "before the first time"},
		{4, 100, 100, true, "at its beginning"},
		{4, 109, 150, true, "until its end"},
		{4, 110, 150, false, "after it"},
		{5, 155, 200, true, "the second time"},
		{6, 105, 120, false, "another cell"},
		{6, 125, 170, true, "another cell, later"},
	} {
		require.Equal(t, c.next, f.next(c.device, c.t), c.explaining)
		require.Equal(t, c.down, f.during(c.device, c.t), c.explaining)
	}
}

// Each entry comes out in the step of its event, however far away that is.
func TestTheCalendarKeepsEveryDevice(t *testing.T) {
	const step, count = 10, 500
	random := rand.New(rand.NewPCG(1, 2))
	last := int64(70 * wheel * step)
	c := newCalendar(step, last)
	at := make([]int64, count)
	for i := range at {
		at[i] = random.Int64N(last)
		if i%2 == 0 {
			at[i] = random.Int64N(5 * wheel * step)
		}
		c.add(entry{at[i], number(i), int32(i % 200)}, 0)
	}
	seen := 0
	var list []entry
	for n := range last / step {
		c.advance(n)
		list = c.take(list[:0])
		for _, e := range list {
			require.Equal(t, n, e.at/step)
			require.Equal(t, entry{at[e.device], e.device, int32(e.device % 200)}, e)
			seen++
		}
	}
	require.Equal(t, count, seen)
}

// A calendar is as large as what it holds at a time.
func TestTheCalendarUsesItsChunksAgain(t *testing.T) {
	const step, count = 10, 1000
	c := newCalendar(step, 100*wheel*step)
	for n := range int64(50 * wheel) {
		c.advance(n)
		for _, e := range c.take(nil) {
			if n != e.at/step {
				t.Fatalf("an entry of step %d in step %d", e.at/step, n)
			}
		}
		if n%100 == 0 {
			for i := range count {
				c.add(entry{(n + 50) * step, number(i), wake}, n)
			}
		}
	}
	require.LessOrEqual(t, len(c.chunks), count/len(chunk{}.entries)+1)
}

// Arrivals are sorted by time, and by device if they come at the same moment: few and many, spread
// and all at once.
func TestArrivalsAreSorted(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, step := range []int64{int64(10 * time.Millisecond), int64(50 * time.Millisecond), int64(time.Second)} {
		for _, count := range []int{0, 1, fewArrivals, 5000, 100_000} {
			for _, within := range []int64{1, 100, step} {
				o := order{step: step}
				var list []arrival
				for i := range count {
					list = append(list, arrivalOf(entry{7 + random.Int64N(within), number(count - i), 3}, 7))
				}
				want := slices.Sorted(slices.Values(list))
				require.True(t, slices.Equal(want, o.sort(list)), "%d within %d of %d ns", count, within, step)
			}
		}
	}
	a := arrivalOf(entry{int64(time.Second) + 99, 1<<(blockBits+deviceBits) - 1, register}, 100)
	require.Equal(t, int64(time.Second)-1, a.since())
	require.EqualValues(t, 1<<(blockBits+deviceBits)-1, a.device())
	require.Equal(t, register, a.request())
}

// Requests of a step are answered by time, whatever block they come from.
func TestTheFirstToArriveIsServedFirst(t *testing.T) {
	s := &simulation{
		scenario: Scenario{Devices: 2 * blockSize, Hub: Hub{Connects: 1, Burst: 1, Queue: -1}}.WithDefaults(),
		rules:    Rules{}.withDefaults(), end: int64(time.Hour),
	}
	s.options, _ = (&Options{}).withDefaults(time.Hour)
	s.prepare()
	require.NoError(t, s.populate())
	require.Len(t, s.blocks, 2)
	for _, r := range []struct {
		block  int
		since  int64
		device int32
	}{{0, 2000, 1}, {0, 3000, 0}, {1, 1000, 5}} {
		b := s.blocks[r.block]
		b.requests = append(b.requests, entry{r.since, b.numberOf(r.device), connect})
	}
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
	require.Equal(t, int64(never), quiet.after(0))
}
