package arm

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
	"github.com/hubline-iot/hubline/cross/arm/internal/modems"
	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// The firmware of all boards on standard Go, in fake time: a modem on a serial line in memory,
// connected to the in-process hub.

// bench is a hub, a modem and the board's end of its line.
type bench struct {
	hub   *testbroker.Hub
	key   []byte
	modem *modems.Line
	port  *modems.Port
	board *board.Modem
	ended chan error
}

const boardID = "board-1"

func newBench(t *testing.T) *bench {
	t.Helper()
	hub, err := testbroker.New(&testbroker.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := hub.AddDevice(boardID)
	if err != nil {
		t.Fatal(err)
	}
	key := board.Key(dev.PrimaryKey)
	near, far := memconn.Pair("board", "modem")
	b := &bench{hub: hub, key: key, modem: &modems.Line{Port: far, Dial: hub.Dial(testbroker.PortMQTT), Now: time.Now},
		port:  modems.NewPort(near),
		ended: make(chan error, 1)}
	b.board = board.NewModem(b.port)
	go func() { b.ended <- b.modem.Serve() }()
	t.Cleanup(func() {
		b.port.Close()
		if err := <-b.ended; !errors.Is(err, io.EOF) {
			t.Errorf("the modem ended with %v", err)
		}
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	})
	if !b.board.SetClock(time.Second) {
		t.Fatal("the modem does not tell the time")
	}
	return b
}

// config returns a board's Config, with n readings a second.
func (b *bench) config(n int) board.Config {
	return board.Config{
		Host: b.hub.HostName(), DeviceID: boardID, Sign: board.Signer(b.key), Dial: b.board.Dial, Now: b.board.Now,
		Read:     func(p []byte) []byte { return append(p, `"celsius":21.5`...) },
		Interval: time.Second / time.Duration(n),
	}
}

// numbers returns the numbers of the readings in the hub's log, each once, in order of first
// arrival.
func numbers(t *testing.T, hub *testbroker.Hub) (seen []int, duplicates int) {
	t.Helper()
	have := map[int]bool{}
	for _, m := range hub.Messages() {
		var reading struct {
			N       int     `json:"n"`
			Celsius float64 `json:"celsius"`
		}
		if err := json.Unmarshal(m.Body, &reading); err != nil || reading.N == 0 || reading.Celsius == 0 {
			t.Fatalf("the hub has the message %q: %v", m.Body, err)
		}
		if have[reading.N] {
			duplicates++
			continue
		}
		have[reading.N] = true
		seen = append(seen, reading.N)
	}
	return seen, duplicates
}

// missing returns how many numbers up to the latest one are not among seen.
func missing(seen []int) (n int) {
	for i := range slices.Max(seen) {
		if !slices.Contains(seen, i+1) {
			n++
		}
	}
	return n
}

// checkNumbers expects the numbers 1 to n, in order.
func checkNumbers(t *testing.T, hub *testbroker.Hub, n int) (duplicates int) {
	t.Helper()
	seen, duplicates := numbers(t, hub)
	if len(seen) != n {
		t.Errorf("the hub has %d different readings, want %d", len(seen), n)
	}
	for i, got := range seen {
		if got != i+1 {
			t.Errorf("reading %d came in place %d", got, i+1)
			break
		}
	}
	return duplicates
}

func TestFirmwareBringsEveryReadingThroughLostConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		c := b.config(2)
		c.Slots = 64 // a flapping link backs off to 10 s
		fed := 0
		c.Feed = func() { fed++ }
		var states []string
		c.Status = func(s device.Status) { states = append(states, s.Reason.String()) }
		f, err := board.New(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			defer stop()
			for i := range 60 {
				if i%2 == 0 {
					b.hub.Inject(fault.Fault{Kind: fault.DropAfterPublish, After: 3})
				}
				time.Sleep(17 * time.Second)
				b.hub.Drop(boardID)
			}
			time.Sleep(time.Minute)
		}()
		start := time.Now()
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
		counts := f.Counts()
		if counts.Lost != 0 || counts.Acknowledged != counts.Taken || counts.Taken < 2000 {
			t.Errorf("%+v", counts)
		}
		duplicates := checkNumbers(t, b.hub, int(counts.Taken))
		if seconds := int(time.Since(start).Seconds()); fed < seconds {
			t.Errorf("the watchdog was fed %d times in %d s", fed, seconds)
		}
		if b.modem.Dials < 60 || duplicates == 0 {
			t.Errorf("%d connections, %d duplicates, want one connection for each loss, and some of both", b.modem.Dials,
				duplicates)
		}
		t.Logf("%+v, %d duplicates, %d connections, %d changes of state", counts, duplicates, b.modem.Dials, len(states))
	})
}

func TestFirmwareKeepsTheNewestReadingsThroughALongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		outage := b.hub.Inject(fault.Fault{Kind: fault.Absent})
		c := b.config(1)
		c.Slots = 10
		f, err := board.New(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			defer stop()
			time.Sleep(100*time.Second + 500*time.Millisecond)
			outage.Remove()
			time.Sleep(time.Minute)
		}()
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
		counts := f.Counts()
		seen, _ := numbers(t, b.hub)
		if counts.Lost == 0 || counts.Acknowledged+counts.Lost != counts.Taken || len(seen) != int(counts.Acknowledged) {
			t.Errorf("%+v, the hub has %d", counts, len(seen))
		}
		for i, n := range seen {
			if want := int(counts.Lost) + i + 1; n != want {
				t.Errorf("reading %d came in place %d, want %d: the oldest give way", n, i, want)
				break
			}
		}
	})
}

func TestFirmwareThatSleepsBringsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		f, err := board.New(b.config(1))
		if err != nil {
			t.Fatal(err)
		}
		const wakings = 40
		failed := 0
		for i := range wakings {
			if i%10 == 4 || i%10 == 5 { // two in a row
				b.hub.Inject(fault.Fault{Kind: fault.Absent, For: 15 * time.Second})
			}
			if err := f.Cycle(10 * time.Second); err != nil {
				failed++
			}
			synctest.Wait() // the hub reads the end of the connection
			if n := b.hub.Connections(boardID); n != 0 {
				t.Fatalf("%d connections while the board sleeps", n)
			}
			time.Sleep(10 * time.Minute)
		}
		if counts := f.Counts(); counts.Acknowledged != wakings || counts.Lost != 0 || failed != 8 {
			t.Errorf("%+v, %d wakings without a hub", counts, failed)
		}
		checkNumbers(t, b.hub, wakings)
	})
}

// flash is a board.Store in RAM.
type flash struct {
	kept map[uint32]string
	last uint32
}

func (f *flash) Keep(n uint32, body []byte) error {
	f.kept[n], f.last = string(body), n
	return nil
}

func (f *flash) Forget(n uint32) error {
	delete(f.kept, n)
	return nil
}

func (f *flash) Load(take func(uint32, []byte)) (uint32, error) {
	for n := uint32(1); n <= f.last; n++ {
		if body, ok := f.kept[n]; ok {
			take(n, []byte(body))
		}
	}
	return f.last, nil
}

func TestFirmwareWithAStoreOutlivesALossOfPower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		memory := &flash{kept: map[uint32]string{}}
		const lives = 12
		for i := range lives {
			c := b.config(1)
			c.Store = memory
			f, err := board.New(c) // the contents of RAM are lost
			if err != nil {
				t.Fatal(err)
			}
			if i%3 != 2 {
				b.hub.Inject(fault.Fault{Kind: fault.Absent, For: time.Minute})
			}
			_ = f.Cycle(10 * time.Second)
			time.Sleep(time.Hour)
		}
		if len(memory.kept) != 0 {
			t.Errorf("%d readings are still in the store", len(memory.kept))
		}
		checkNumbers(t, b.hub, lives)
	})
}

func TestFirmwareStopsFeedingTheWatchdogWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.hub.Inject(fault.Fault{Kind: fault.Absent})
		c := b.config(1)
		c.RebootAfter = 10 * time.Minute
		var fed time.Duration
		start := time.Now()
		c.Feed = func() { fed = time.Since(start) }
		f, err := board.New(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Minute)
		defer stop()
		_ = f.Run(ctx)
		if fed < 9*time.Minute || fed > 10*time.Minute {
			t.Errorf("fed until %v, want until 10 min without progress", fed)
		}
	})
}

// A board whose watchdog runs during sleep is fed through Cycle, also without a hub, and through
// Sleep, until RebootAfter has passed without progress.
func TestFirmwareThatSleepsFeedsTheWatchdog(t *testing.T) {
	const watchdog = 8 * time.Second
	for _, probe := range []struct {
		name   string
		absent time.Duration
		reset  bool
	}{{"hub there", 0, false}, {"hub away for a while", 30 * time.Minute, false}, {"hub away for good", 24 * time.Hour,
		true}} {
		testkit.Run(t, probe.name, func(t *testing.T) {
			b := newBench(t)
			if probe.absent != 0 {
				b.hub.Inject(fault.Fault{Kind: fault.Absent, For: probe.absent})
			}
			c := b.config(1)
			c.RebootAfter = time.Hour
			var longest time.Duration
			last := time.Now()
			c.Feed = func() {
				longest, last = max(longest, time.Since(last)), time.Now()
			}
			f, err := board.New(c)
			if err != nil {
				t.Fatal(err)
			}
			for range 12 {
				_ = f.Cycle(20 * time.Second)
				start := time.Now()
				f.Sleep(10 * time.Minute)
				if d := time.Since(start); d != 10*time.Minute {
					t.Errorf("slept %v", d)
				}
			}
			longest = max(longest, time.Since(last))
			if (longest > watchdog) != probe.reset {
				t.Errorf("not fed for %v by a watchdog of %v", longest, watchdog)
			}
			if counts := f.Counts(); !probe.reset && counts.Acknowledged != 12 {
				t.Errorf("%+v", counts)
			}
		})
	}
}

// Readings in flight keep their slots. Behind them the oldest are dropped, and the newest stay.
func TestFirmwareDropsTheOldestReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		slow := b.hub.Inject(fault.Fault{Kind: fault.SlowPuback, Times: -1, Delay: 24700 * time.Millisecond})
		c := b.config(1)
		c.Slots = 16
		f, err := board.New(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		time.Sleep(24*time.Second + 500*time.Millisecond)
		slow.Remove()
		time.Sleep(time.Minute)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		counts := f.Counts()
		seen, _ := numbers(t, b.hub)
		for n := 20; n <= int(counts.Taken); n++ {
			if !slices.Contains(seen, n) {
				t.Errorf("reading %d gave way, and older ones did not", n)
			}
		}
		if !slices.IsSorted(seen) || counts.Lost == 0 || counts.Acknowledged+counts.Lost != counts.Taken ||
			len(seen) != int(counts.Acknowledged) {
			t.Errorf("%+v, at the hub %v", counts, seen)
		}
	})
}

// locked is a store with a lock that must not be taken twice.
type locked struct {
	flash
	mu sync.Mutex
}

func (l *locked) Forget(n uint32) error {
	if !l.mu.TryLock() {
		return errors.New("called from within Load")
	}
	defer l.mu.Unlock()
	return l.flash.Forget(n)
}

func (l *locked) Load(take func(uint32, []byte)) (uint32, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flash.Load(take)
}

// If a store has more readings than the ring, or larger ones, the firmware removes them, after
// Load. The oldest remaining one is dropped for the new reading.
func TestFirmwareForgetsAfterLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		memory := &locked{flash: flash{kept: map[uint32]string{}}}
		for n := uint32(1); n <= 40; n++ {
			_ = memory.Keep(n, fmt.Appendf(nil, `{"n":%d,"celsius":1}`, n))
		}
		_ = memory.Keep(38, bytes.Repeat([]byte("x"), 200))
		memory.last = 40
		c := b.config(1)
		c.Slots, c.Store = 16, memory
		f, err := board.New(c)
		if err != nil {
			t.Fatal(err)
		}
		if counts := f.Counts(); counts.Lost != 25 || counts.StoreErrors != 0 || len(memory.kept) != 15 {
			t.Errorf("%+v, %d in the store", counts, len(memory.kept))
		}
		if err := f.Cycle(10 * time.Second); err != nil {
			t.Error(err)
		}
		if seen, _ := numbers(t, b.hub); !slices.Equal(seen, []int{26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 39, 40,
			41}) || len(memory.kept) != 0 {
			t.Errorf("at the hub %v, %d in the store", seen, len(memory.kept))
		}
	})
}

func TestFirmwareObeysMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		c := b.config(1)
		var got []string
		c.Command = func(body []byte) { got = append(got, string(body)) }
		f, err := board.New(c)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 { // one per slot
			if err := b.hub.SendC2D(boardID, hubdata.C2D{MessageID: strconv.Itoa(i), Body: []byte{'c', '0' + byte(i),
				board.Escape}}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
		if len(got) != 4 || got[3] != "c3\x10" || b.hub.CountC2D(boardID, hubdata.C2DCompleted) != 4 {
			t.Errorf("%q, %d settled", got, b.hub.CountC2D(boardID, hubdata.C2DCompleted))
		}
	})
}

func TestFirmwareNamesMissingFields(t *testing.T) {
	good := func() board.Config {
		return board.Config{
			Host: "hub", DeviceID: "d", Sign: board.Signer([]byte("k")), Dial: board.NewModem(&script{}).Dial, Now: time.Now,
			Read: func(b []byte) []byte { return b },
		}
	}
	for _, probe := range []struct {
		word  string
		spoil func(*board.Config)
	}{
		{"Sign", func(c *board.Config) { c.Sign = nil }},
		{"Dial", func(c *board.Config) { c.Dial = nil }},
		{"Now", func(c *board.Config) { c.Now = nil }},
		{"Read", func(c *board.Config) { c.Read = nil }},
		{"Slots", func(c *board.Config) { c.Slots = 1 }},
		{"SlotSize", func(c *board.Config) { c.SlotSize = 8 }},
		{"Interval", func(c *board.Config) { c.Interval = -1 }},
	} {
		c := good()
		if _, err := board.New(c); err != nil {
			t.Fatal(err)
		}
		probe.spoil(&c)
		if _, err := board.New(c); err == nil || !bytes.Contains([]byte(err.Error()), []byte(probe.word)) {
			t.Errorf("without %s: %v", probe.word, err)
		}
	}
}

// Key returns the same as encoding/base64.
func TestKey(t *testing.T) {
	for n := range 70 {
		key := make([]byte, n+1)
		for i := range key {
			key[i] = byte(37*i + 251*n)
		}
		if got := board.Key(base64.StdEncoding.EncodeToString(key)); !bytes.Equal(got, key) {
			t.Errorf("%x, want %x", got, key)
		}
	}
	for _, text := range []string{"", "=", "a b", "AAA\n", "AA=A", "\xff"} {
		if got := board.Key(text); got != nil {
			t.Errorf("%q: %x", text, got)
		}
	}
}

// Signer returns the same as crypto/hmac, for keys and texts of all sizes around the block size.
func TestSignerIsHMAC(t *testing.T) {
	for _, size := range []int{0, 1, 32, 63, 64, 65, 128, 1000} {
		for _, length := range []int{0, 1, 55, 64, 120, 5000} {
			key, text := bytes.Repeat([]byte{7, 9, 11}, size)[:size], bytes.Repeat([]byte("text"), length)[:length]
			mac := hmac.New(sha256.New, key)
			mac.Write(text)
			sign := board.Signer(key)
			for range 2 {
				got, err := sign(t.Context(), text)
				if err != nil || !bytes.Equal(got, mac.Sum(nil)) {
					t.Errorf("key of %d, text of %d bytes: %x, %v", size, length, got, err)
				}
			}
		}
	}
}
