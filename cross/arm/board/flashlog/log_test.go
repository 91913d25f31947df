package flashlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/cross/arm/board/flashlog"
	"github.com/hubline-iot/hubline/internal/flashsim"
	"github.com/hubline-iot/hubline/internal/testkit"
)

// body is the reading with a number: 20 to 59 bytes that differ by number.
func body(number uint32) []byte {
	return bytes.Repeat([]byte{byte('a' + number%26)}, 20+int(number*7%40))
}

func open(t *testing.T, c *chip, o *flashlog.Options) *flashlog.Log {
	t.Helper()
	l, err := flashlog.New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// load returns the numbers that the log has, and checks their readings.
func load(t *testing.T, l *flashlog.Log) (numbers []uint32, last uint32) {
	t.Helper()
	return loadWith(t, l, body)
}

// loadWith is load with other readings.
func loadWith(t *testing.T, l *flashlog.Log, body func(uint32) []byte) (numbers []uint32, last uint32) {
	t.Helper()
	last, err := l.Load(func(number uint32, b []byte) {
		if !bytes.Equal(b, body(number)) {
			t.Errorf("reading %d has the body %q", number, b)
		}
		numbers = append(numbers, number)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(numbers) {
		t.Errorf("out of order: %v", numbers)
	}
	return numbers, last
}

func TestReadingsSurviveAReset(t *testing.T) {
	c := newChip(4, 512, 4)
	l := open(t, c, nil)
	if numbers, last := load(t, l); len(numbers) != 0 || last != 0 {
		t.Errorf("a blank device has %v, last %d", numbers, last)
	}
	for n := uint32(1); n <= 9; n++ {
		if err := l.Keep(n, body(n)); err != nil {
			t.Fatal(err)
		}
		if n == 3 || n == 7 { // in any order
			_ = l.Forget(2)
			_ = l.Forget(1)
		}
	}
	_ = l.Forget(3)
	again := open(t, c, nil)
	if numbers, last := load(t, again); fmt.Sprint(numbers) != "[3 4 5 6 7 8 9]" || last != 9 {
		t.Errorf("%v, last %d; no write has said that 3 is forgotten", numbers, last)
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	writes := c.writes
	if err := l.Sync(); err != nil || c.writes != writes {
		t.Errorf("%v; a second Sync has nothing to write", err)
	}
	if numbers, last := load(t, open(t, c, nil)); fmt.Sprint(numbers) != "[4 5 6 7 8 9]" || last != 9 {
		t.Errorf("%v, last %d, after Sync", numbers, last)
	}
	for n := uint32(4); n <= 9; n++ {
		_ = l.Forget(n)
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	if numbers, last := load(t, open(t, c, nil)); len(numbers) != 0 || last != 9 {
		t.Errorf("%v, last %d, after all are forgotten", numbers, last)
	}
}

// A reading costs one write. All blocks are erased equally often.
func TestWear(t *testing.T) {
	const readings, blocks, block = 20_000, 8, 1024
	for _, write := range []int{1, 4, 8, 256} {
		t.Run(fmt.Sprint(write), func(t *testing.T) {
			c := newChip(blocks, block, int64(write))
			l := open(t, c, nil)
			bytes := 0
			for n := uint32(1); n <= readings; n++ {
				if err := l.Keep(n, body(n)); err != nil {
					t.Fatal(err)
				}
				if err := l.Forget(n); err != nil {
					t.Fatal(err)
				}
				bytes += (16 + len(body(n)) + write - 1) / write * write
				if n%1000 == 0 { // resets do not wear
					l = open(t, c, nil)
					_, _ = load(t, l)
					_ = l.Forget(n)
				}
			}
			if c.writes != readings {
				t.Errorf("%d writes for %d readings", c.writes, readings)
			}
			least, most := c.Wear()
			if most-least > 1 || least*blocks*block > bytes*5/4 {
				t.Errorf("blocks were erased %d to %d times for %d bytes", least, most, bytes)
			}
			t.Logf("%d readings, %d bytes: %d writes, %d to %d erases of each of %d blocks", readings, bytes, c.writes, least,
				most, blocks)
		})
	}
}

// ledger is what a test knows about a log.
type ledger struct {
	kept      []uint32 // Keep returned nil
	tried     uint32   // the latest number given to Keep
	bodies    map[uint32][]byte
	lives     int
	forgotten map[uint32]bool
	low       uint32 // all below were forgotten at the latest successful Keep
}

// life keeps and forgets readings until the power fails or the numbers reach until.
func (g *ledger) life(l *flashlog.Log, until uint32) {
	for g.lives++; g.tried < until; {
		g.tried++
		b := fmt.Appendf(nil, "%d%s", g.lives, body(g.tried)) // numbers are used again after a failed Keep
		g.bodies[g.tried] = b
		if l.Keep(g.tried, b) != nil {
			return
		}
		g.kept = append(g.kept, g.tried)
		waiting := g.waiting()
		g.low = waiting[0]
		for len(waiting) > 12 {
			g.forget(l, waiting[0])
			waiting = waiting[1:]
		}
		if g.tried%3 == 0 { // out of order
			g.forget(l, waiting[len(waiting)/2])
		}
	}
}

// waiting returns the readings that are not forgotten.
func (g *ledger) waiting() (numbers []uint32) {
	for _, n := range g.kept {
		if !g.forgotten[n] {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

func (g *ledger) forget(l *flashlog.Log, n uint32) {
	g.forgotten[n] = true
	_ = l.Forget(n)
}

// check opens the log after a reset, and compares.
func (g *ledger) check(t *testing.T, c *chip) *flashlog.Log {
	t.Helper()
	l := open(t, c, &narrow)
	numbers, last := loadWith(t, l, func(n uint32) []byte { return g.bodies[n] })
	have := map[uint32]bool{}
	for _, n := range numbers {
		have[n] = true
		if n > g.tried || n < g.low {
			t.Errorf("the log has reading %d; %d to %d are possible", n, g.low, g.tried)
		}
	}
	for _, n := range g.kept {
		if !g.forgotten[n] && !have[n] {
			t.Errorf("reading %d of %d is lost; the log has %v", n, g.tried, numbers)
		}
	}
	for _, n := range numbers { // sent again, and the one whose Keep failed, but not its write
		delete(g.forgotten, n)
		if !slices.Contains(g.kept, n) {
			g.kept = append(g.kept, n)
		}
	}
	if n := len(g.kept); n > 0 && last < g.kept[n-1] || last > g.tried {
		t.Errorf("the log says that the last number is %d; %d were kept", last, n)
	}
	g.tried = last
	return l
}

var narrow = flashlog.Options{MaxBody: 64}

func newLedger() *ledger { return &ledger{bodies: map[uint32][]byte{}, forgotten: map[uint32]bool{}} }

// The power fails at every single word and erase in turn, or at a sample of them, in several ways,
// and once more at random after that. No reading is lost that Keep has accepted.
func TestPowerFailsAtEveryWrite(t *testing.T) {
	const readings, seeds = 48, 2
	step := 13
	if testkit.Long() {
		step = 1
	}
	for _, geometry := range []struct{ blocks, block, write int64 }{
		{6, 512, 4}, {4, 1024, 8}, {10, 512, 2}, {12, 1024, 256},
	} {
		t.Run(fmt.Sprint(geometry), func(t *testing.T) {
			whole := newChip(geometry.blocks, geometry.block, geometry.write)
			dry := newLedger()
			dry.life(open(t, whole, &narrow), readings)
			faults := 0
			for failAt := 1; failAt <= whole.Operations(); failAt += step {
				for seed := range uint64(seeds) {
					if t.Failed() {
						return
					}
					c := newChip(geometry.blocks, geometry.block, geometry.write)
					random := rand.New(rand.NewPCG(seed, uint64(failAt)))
					g := newLedger()
					tear := func() flashsim.Tear { return flashsim.Tears[random.IntN(len(flashsim.Tears))] }
					c.CutAt(failAt, tear(), seed)
					for l := open(t, c, &narrow); g.tried < readings; faults++ {
						g.life(l, readings)
						c.Restore()
						l = g.check(t, c)
						c.CutAt(1+random.IntN(1600/int(geometry.write)), tear(), seed)
					}
				}
			}
			t.Logf("the power failed %d times, at every %d of %d words and erases", faults, step, whole.Operations())
		})
	}
}

// liar is a chip that reports a failure of one write although it is complete.
type liar struct {
	*chip
	failAt int
}

func (l *liar) WriteAt(p []byte, off int64) (int, error) {
	n, err := l.chip.WriteAt(p, off)
	if l.chip.writes == l.failAt {
		return 0, errors.New("the chip is busy")
	}
	return n, err
}

// A write that is complete and reported as failed is repeated elsewhere, in the next block if there
// is no space. The record is then there twice, and no other one is lost for that, whenever the
// board is reset.
func TestACompleteWriteReportedAsFailed(t *testing.T) {
	const readings, waiting = 60, 12
	for failAt := 1; failAt <= readings; failAt++ {
		c := newChip(4, 512, 4)
		l, err := flashlog.New(&liar{c, failAt}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := uint32(1); n <= readings; n++ {
			if err := l.Keep(n, body(n)); err != nil {
				t.Fatal(failAt, n, err)
			}
			if n > waiting {
				_ = l.Forget(n - waiting)
			}
			numbers, last := load(t, open(t, c, nil))
			for i := range min(n, waiting) {
				if !slices.Contains(numbers, n-i) || last != n {
					t.Fatalf("write %d: after reading %d the log has %v, last %d", failAt, n, numbers, last)
				}
			}
			if n%7 == uint32(failAt%7) { // a reset
				if l, err = flashlog.New(&liar{c, failAt}, nil); err != nil {
					t.Fatal(err)
				}
				_, _ = load(t, l)
				for m := range uint32(max(0, int(n)-waiting)) { // sent again
					_ = l.Forget(m + 1)
				}
			}
		}
	}
}

// A changed bit costs at most the reading that it hits.
func TestAChangedBitCostsOneReading(t *testing.T) {
	c := newChip(3, 512, 4)
	l := open(t, c, nil)
	for n := uint32(1); n <= 12; n++ {
		if err := l.Keep(n, body(n)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range c.Size() {
		c.Damage(i, 0x10)
		numbers, _ := load(t, open(t, c, nil))
		c.Damage(i, 0x10)
		if len(numbers) < 11 {
			t.Fatalf("with a changed bit at %d the log has %v", i, numbers)
		}
	}
}

// Blocks that keep nothing are passed over, and a device of such blocks is an error.
func TestWornBlocks(t *testing.T) {
	c := newChip(5, 512, 4)
	c.worn[0], c.worn[2], c.worn[3] = true, true, true
	l := open(t, c, &flashlog.Options{MaxPending: 5})
	for n := uint32(1); n <= 100; n++ {
		if err := l.Keep(n, body(n)); err != nil {
			t.Fatal(n, err)
		}
		again := open(t, c, nil)
		if numbers, last := load(t, again); last != n || !slices.Contains(numbers, n) {
			t.Fatalf("after reading %d: %v, last %d", n, numbers, last)
		}
	}
	c.worn[1], c.worn[4] = true, true
	for n := uint32(101); ; n++ {
		err := l.Keep(n, body(n))
		if err != nil && strings.Contains(err.Error(), "worn") {
			break
		}
		if n > 130 {
			t.Fatal("a device that keeps nothing took 30 readings")
		}
	}
}

// While the chip takes no writes and no erases, Keep fails and no reading is lost: neither in a log
// with blank blocks nor in one that has come round, however many calls fail.
func TestAFaultOfTheChipCostsNoReading(t *testing.T) {
	const waiting = 12
	for _, f := range []fault{refuses, ignores} {
		for kept := uint32(waiting); kept <= 80; kept += 3 {
			for _, failures := range []uint32{1, 2, 40} {
				c := newChip(5, 512, 4)
				l := open(t, c, nil)
				for n := uint32(1); n <= kept; n++ {
					if err := l.Keep(n, body(n)); err != nil {
						t.Fatal(err)
					}
					if n > waiting {
						_ = l.Forget(n - waiting)
					}
				}
				c.fault = f
				n := kept
				for range failures {
					n++
					if l.Keep(n, body(n)) == nil {
						t.Fatalf("%s: Keep returned no error", f)
					}
				}
				c.fault = healthy
				n++
				if err := l.Keep(n, body(n)); err != nil {
					t.Fatalf("%s, %d readings: after %d failures: %v", f, kept, failures, err)
				}
				numbers, last := load(t, open(t, c, nil))
				for i := range uint32(waiting) {
					if !slices.Contains(numbers, kept-i) || last != n {
						t.Fatalf("%s, %d readings: after %d failures the log has %v, last %d", f, kept, failures, numbers, last)
					}
				}
				if !slices.Contains(numbers, n) || l.Dropped() != 0 {
					t.Fatalf("%s, %d readings: the log has %v, dropped %d", f, kept, numbers, l.Dropped())
				}
			}
		}
	}
}

// A failed Keep erases a few blocks at most, also while only writes fail.
func TestAFailedKeepErasesFewBlocks(t *testing.T) {
	for _, f := range []fault{refuses, ignores, refusesWrite} {
		for _, blocks := range []int64{2, 3, 16} {
			c := newChip(blocks, 512, 4)
			l, n := filled(t, c)
			c.fault = f
			before := c.erases
			if l.Keep(n+1, body(n+1)) == nil {
				t.Fatalf("%s: Keep returned no error", f)
			}
			if erases := c.erases - before; erases > 3 {
				t.Errorf("%s: a failed Keep erased %d of %d blocks", f, erases, blocks)
			}
			if numbers, last := load(t, open(t, c, nil)); last != n || !slices.Contains(numbers, n) {
				t.Errorf("%s: a failed Keep lost the latest reading of %d blocks: %v, last %d", f, blocks, numbers, last)
			}
		}
	}
}

// filled returns a log that has gone round a small chip several times, and its latest reading.
func filled(t *testing.T, c *chip) (l *flashlog.Log, n uint32) {
	l = open(t, c, nil)
	for n < 200 {
		n++
		if err := l.Keep(n, body(n)); err != nil {
			t.Fatal(err)
		}
	}
	return l, n
}

// Blocks that cannot be erased are passed over. Many in a row take several calls.
func TestBlocksThatCannotBeErased(t *testing.T) {
	for locked := range int64(9) {
		c := newChip(10, 512, 4)
		l, n := filled(t, c)
		for i := range locked {
			c.locked[i] = true
		}
		failures := 0
		for n < 500 {
			n++
			if l.Keep(n, body(n)) != nil {
				failures++
				continue
			}
			if numbers, last := load(t, open(t, c, nil)); last != n || !slices.Contains(numbers, n) {
				t.Fatalf("after reading %d: %v, last %d", n, numbers, last)
			}
		}
		if locked < 3 && failures > 0 || locked < 9 && failures > 100 {
			t.Errorf("%d blocks that cannot be erased: %d of 300 readings were refused", locked, failures)
		}
	}
}

// More readings than MaxPending, or than the flash has space for: the oldest give way and are
// counted.
func TestTheOldestGiveWay(t *testing.T) {
	c := newChip(4, 512, 4)
	l := open(t, c, &flashlog.Options{MaxPending: 10})
	for n := uint32(1); n <= 60; n++ {
		if err := l.Keep(n, body(n)); err != nil {
			t.Fatal(err)
		}
	}
	if l.Dropped() != 50 {
		t.Errorf("%d readings gave way, want 50", l.Dropped())
	}
	if numbers, _ := load(t, open(t, c, nil)); len(numbers) != 10 || numbers[0] != 51 {
		t.Errorf("the log has %v", numbers)
	}
	few := open(t, c, &flashlog.Options{MaxPending: 3})
	if numbers, last := load(t, few); fmt.Sprint(numbers) != "[58 59 60]" || last != 60 || few.Dropped() != 7 {
		t.Errorf("a log of 3 readings has %v, last %d, %d gave way", numbers, last, few.Dropped())
	}
	l = open(t, c, &flashlog.Options{MaxPending: 1000})
	for n := uint32(61); n <= 200; n++ {
		if err := l.Keep(n, body(n)); err != nil {
			t.Fatal(err)
		}
	}
	numbers, last := load(t, open(t, c, nil))
	if last != 200 || len(numbers) < 3*512/(16+59+3) || numbers[0] != 201-uint32(len(numbers)) {
		t.Errorf("the log has %v, last %d", numbers, last)
	}
}

func TestKeepRefuses(t *testing.T) {
	l := open(t, newChip(4, 512, 4), nil)
	if err := l.Keep(5, body(5)); err != nil {
		t.Fatal(err)
	}
	for _, probe := range []struct {
		number uint32
		size   int
		word   string
	}{{5, 1, "number"}, {4, 1, "number"}, {6, 129, "MaxBody"}} {
		if err := l.Keep(probe.number, make([]byte, probe.size)); err == nil || !strings.Contains(err.Error(), probe.word) {
			t.Errorf("%+v: %v", probe, err)
		}
	}
}

// Records that do not fit the options or the block are not read.
func TestRecordsOutOfBounds(t *testing.T) {
	c := newChip(2, 512, 4)
	l := open(t, c, nil)
	for n := uint32(1); n <= 4; n++ {
		if err := l.Keep(n, make([]byte, 30*n)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.WriteAt(c.content()[:16], c.Size()-16); err != nil { // a header at the end of the device
		t.Fatal(err)
	}
	var sizes []int
	if _, err := open(t, c, &narrow).Load(func(_ uint32, b []byte) { sizes = append(sizes, len(b)) }); err != nil ||
		fmt.Sprint(sizes) != "[30 60]" {
		t.Errorf("a log of readings of 64 bytes loads some of %v bytes: %v", sizes, err)
	}
}

// After New, nothing is allocated.
func TestKeepAllocatesNothing(t *testing.T) {
	l := open(t, newChip(8, 4096, 4), nil)
	b, n := body(1), uint32(0)
	if allocations := testing.AllocsPerRun(2000, func() {
		n++
		_ = l.Keep(n, b)
		_ = l.Forget(n)
	}); allocations != 0 {
		t.Errorf("%v allocations for a reading", allocations)
	}
}

func TestNewNamesInvalidOptions(t *testing.T) {
	for _, probe := range []struct {
		o    flashlog.Options
		word string
	}{
		{flashlog.Options{First: -1}, "First"}, {flashlog.Options{First: 4}, "First"}, {flashlog.Options{First: 3}, "Blocks"},
		{flashlog.Options{Blocks: 1}, "Blocks"}, {flashlog.Options{First: 1, Blocks: 4}, "Blocks"},
		{flashlog.Options{Blocks: -2}, "Blocks"}, {flashlog.Options{MaxBody: -1}, "MaxBody"},
		{flashlog.Options{MaxBody: 513}, "MaxBody"}, {flashlog.Options{MaxBody: 500}, "MaxBody"},
		{flashlog.Options{MaxPending: -1}, "MaxPending"}, {flashlog.Options{MaxPending: 5000}, "MaxPending"},
	} {
		if _, err := flashlog.New(newChip(4, 512, 4), &probe.o); err == nil || !strings.Contains(err.Error(), probe.word) {
			t.Errorf("%+v: %v", probe.o, err)
		}
	}
	flash := newChip(4, 512, 4).Flash
	for _, c := range []odd{{flash, 0, 512}, {flash, 3, 512}, {flash, 4, 0}, {flash, 2048, 4096}} {
		if _, err := flashlog.New(c, nil); err == nil || !strings.Contains(err.Error(), "blocks") {
			t.Errorf("write blocks of %d, erase blocks of %d: %v", c.write, c.block, err)
		}
	}
}

// Whatever a device has, the log opens, keeps within its bounds, and takes readings.
func FuzzOpen(f *testing.F) {
	c := newChip(3, 256, 4)
	l, err := flashlog.New(c, &flashlog.Options{MaxBody: 64})
	if err != nil {
		f.Fatal(err)
	}
	for n := uint32(1); n <= 20; n++ {
		_ = l.Keep(n, body(n))
	}
	f.Add(c.content())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, memory []byte) {
		c := newChip(3, 256, 4)
		for i := range min(int64(len(memory)), c.Size()) {
			c.Damage(i, 0xff^memory[i])
		}
		o := &flashlog.Options{MaxBody: 64, MaxPending: 8}
		l := open(t, c, o)
		before := uint32(0)
		count := 0
		last, err := l.Load(func(number uint32, b []byte) {
			if number <= before || len(b) > 64 {
				t.Errorf("reading %d of %d bytes after %d", number, len(b), before)
			}
			before = number
			count++
		})
		if err != nil || count > 8 || before > last {
			t.Fatalf("%v; %d readings, the last %d of %d", err, count, before, last)
		}
		if last > 1<<31 {
			return // no number follows, for long
		}
		if err := l.Keep(last+1, body(1)); err != nil {
			t.Fatal(err)
		}
		var got []byte
		if again, err := open(t, c, o).Load(func(_ uint32, b []byte) { got = bytes.Clone(b) }); err != nil ||
			again != last+1 || !bytes.Equal(got, body(1)) {
			t.Fatalf("%v: %q, last %d, want %d", err, got, again, last+1)
		}
	})
}
