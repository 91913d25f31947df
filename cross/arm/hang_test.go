package arm

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
	"github.com/hubline-iot/hubline/cross/arm/board/flashlog"
	"github.com/hubline-iot/hubline/internal/flashsim"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// A firmware with a store hangs in its sensor, life after life. Each time the watchdog resets the
// chip, and every reading that the flash accepted arrives. The chip is played here: a reset takes
// the connection and the RAM.
func TestAFirmwareThatHangsIsResetAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hangs, watchdog = 6, 8 * time.Second
		b, memory, accepted := newBench(t), newFlash(), map[int]bool{}
		resets := 0
		for life := range hangs + 1 {
			memory.Restore()
			log, err := flashlog.New(memory, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, reset := context.WithTimeout(t.Context(), time.Hour)
			running, stop := context.WithCancel(ctx)
			dog := time.AfterFunc(watchdog, reset)
			c := b.config(2)
			c.Slots, c.Store = 48, &witness{Store: log, accepted: accepted}
			fed, readings := time.Now(), 0
			c.Feed = func() {
				fed = time.Now()
				dog.Reset(watchdog)
			}
			c.Dial = func(dialing context.Context, _ *transport.Credentials) (engine.Conn, error) {
				if ctx.Err() != nil {
					return nil, &transport.Error{Kind: transport.Network}
				}
				conn, err := b.board.Dial(dialing, nil)
				if err == nil {
					context.AfterFunc(ctx, func() { _ = conn.Close() })
				}
				return conn, err
			}
			c.Read = func(p []byte) []byte {
				if readings++; life < hangs && readings == 10+life {
					<-ctx.Done()
					memory.CutAt(1, flashsim.Nothing, 0) // the chip writes no more
					resets++
					if silent := time.Since(fed); silent != watchdog {
						t.Errorf("life %d: reset after %v without food, want %v", life, silent, watchdog)
					}
				}
				if readings == 100 {
					stop()
				}
				return append(p, `"celsius":21.5`...)
			}
			f, err := board.New(c)
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Run(running) // the end of a life has no result
			dog.Stop()
			stop()
			reset()
		}
		arrived, _ := checkAccepted(t, b.hub, accepted)
		if resets != hangs || len(accepted) < 100 {
			t.Errorf("%d resets, %d readings", resets, len(accepted))
		}
		t.Logf("%d resets; %d readings accepted by the flash, %d arrived", resets, len(accepted), arrived)
	})
}
