package atmodem_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cross/arm/board"
	"github.com/hubline-iot/hubline/cross/arm/board/atmodem"
	"github.com/hubline-iot/hubline/cross/arm/internal/modems"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
)

const boardID = "board-1"

// setup is what a test changes of a bench.
type setup struct {
	family modems.Family
	secure bool
	modem  func(*modems.Config)
	config func(*atmodem.Config)
}

// bench is a hub, an emulated modem, and the driver at the board's end of its line.
type bench struct {
	hub   *testbroker.Hub
	key   []byte
	emu   *modems.Modem
	modem *atmodem.Modem
	port  *modems.Port
}

var dialects = map[modems.Family]*atmodem.Dialect{
	modems.SIMCom: atmodem.SIM7x00, modems.Quectel: atmodem.BG9x,
}

// kinds are all combinations of families and sockets.
var kinds = []struct {
	name string
	setup
}{
	{"SIM7x00", setup{family: modems.SIMCom}},
	{"SIM7x00 TLS", setup{family: modems.SIMCom, secure: true}},
	{"BG9x", setup{family: modems.Quectel}},
	{"BG9x TLS", setup{family: modems.Quectel, secure: true}},
}

// eachKind runs f in fake time for all kinds.
func eachKind(t *testing.T, f func(t *testing.T, s setup)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				f(t, k.setup)
			})
		})
	}
}

// in runs f in fake time.
func in(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	testkit.In2030(t, func(t *testing.T) {
		f(t)
	})
}

func newBench(t *testing.T, s setup) *bench {
	t.Helper()
	hub, err := testbroker.New(&testbroker.Options{Seed: 1})
	require.NoError(t, err)
	dev, err := hub.AddDevice(boardID)
	require.NoError(t, err)
	near, far := memconn.Pair("board", "modem")
	b := &bench{hub: hub, key: board.Key(dev.PrimaryKey), port: modems.NewPort(near)}
	port := testbroker.PortMQTT
	if s.secure {
		port = testbroker.PortMQTTS
	}
	network := modems.Config{Family: s.family, Line: far, Dial: hub.Dial(port), Now: time.Now, Zone: -14}
	if s.modem != nil {
		s.modem(&network)
	}
	b.emu = modems.New(network)
	ended := make(chan error, 1)
	go func() { ended <- b.emu.Serve() }()
	t.Cleanup(func() {
		b.port.Close()
		if err := <-ended; !errors.Is(err, io.EOF) {
			t.Errorf("the emulated modem ended with %v", err)
		}
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	})
	c := atmodem.Config{Port: b.port, Dialect: dialects[s.family], Host: hub.HostName(), APN: "things.example",
		PowerKey: b.emu.Key, Plain: !s.secure, AnyName: s.secure && s.family == modems.SIMCom}
	if s.secure {
		c.CA = "ca.pem"
	}
	if s.config != nil {
		s.config(&c)
	}
	b.modem, err = atmodem.New(c)
	require.NoError(t, err)
	return b
}

// begin writes the CA and sets the clock, as a firmware does.
func (b *bench) begin(t *testing.T, s setup) {
	t.Helper()
	b.writeCA(t, s)
	b.insist(t, b.modem.SetClock)
	require.InDelta(t, 0, time.Until(b.modem.Now()).Seconds(), 2)
}

func (b *bench) writeCA(t *testing.T, s setup) {
	t.Helper()
	if s.secure {
		b.insist(t, func(ctx context.Context) error { return b.modem.WriteCA(ctx, b.hub.CAPEM()) })
	}
}

// insist repeats f until it succeeds, as a firmware does.
func (b *bench) insist(t *testing.T, f func(context.Context) error) {
	t.Helper()
	for end := time.Now().Add(time.Hour); ; time.Sleep(time.Second) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		err := f(ctx)
		cancel()
		if err == nil {
			return
		}
		require.True(t, time.Now().Before(end), "after an hour: %v", err)
	}
}

// config returns a board's Config, with a reading each interval.
func (b *bench) config(interval time.Duration) board.Config {
	return board.Config{
		Host: b.hub.HostName(), DeviceID: boardID, Sign: board.Signer(b.key), Dial: b.modem.Dial, Now: b.modem.Now,
		Read:     func(p []byte) []byte { return append(p, `"celsius":21.5,"text":"OK\r\nERROR\r\n"`...) },
		Interval: interval, Slots: 200,
	}
}

// runFor runs a firmware while f runs, and until all is acknowledged.
func (b *bench) runFor(t *testing.T, c board.Config, f func()) board.Counts {
	t.Helper()
	firmware, err := board.New(c)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer stop()
		f()
	}()
	require.NoError(t, firmware.Run(ctx))
	counts := firmware.Counts()
	require.Zero(t, counts.Lost)
	require.Equal(t, counts.Taken, counts.Acknowledged)
	b.ledger(t, int(counts.Taken))
	return counts
}

// otherCA returns a certificate that did not sign the hub's.
func otherCA(t *testing.T) []byte {
	t.Helper()
	hub, err := testbroker.New(&testbroker.Options{Seed: 2})
	require.NoError(t, err)
	defer hub.Close()
	return hub.CAPEM()
}

// ledger expects the readings 1 to n at the hub, each at least once, in order of first arrival.
func (b *bench) ledger(t *testing.T, n int) {
	t.Helper()
	next := 1
	for _, m := range b.hub.Messages() {
		var reading struct{ N int }
		require.NoError(t, json.Unmarshal(m.Body, &reading), "%q", m.Body)
		require.LessOrEqual(t, reading.N, next)
		if reading.N == next {
			next++
		}
	}
	require.Equal(t, n, next-1)
}
