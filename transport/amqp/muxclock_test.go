package amqp_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// unset returns a Mux whose dials fail while the clock is not set, and that clock.
func unset(h *hub) (mux *amqp.Mux, set *atomic.Bool, now func() time.Time) {
	set = new(atomic.Bool)
	o := h.options()
	dial := o.Network.Dial
	o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if !set.Load() {
			return nil, &transport.Error{Kind: transport.ClockUnset, Err: errors.New("not set")}
		}
		return dial(ctx, network, addr)
	}
	return amqp.NewMux(o), set, func() time.Time {
		if set.Load() {
			return time.Now()
		}
		return time.Now().Add(-time.Hour)
	}
}

// After the clock was set, no device waits for the pause that a failure of the unset clock began,
// also when the device that dialed has left.
func TestAMuxDialsSoonAfterTheClockIsSet(t *testing.T) {
	for _, after := range []time.Duration{time.Minute, 3 * time.Minute, 200 * time.Second, 5 * time.Minute} {
		bubble(t, func(t *testing.T, h *hub) {
			mux, set, now := unset(h)
			var all []*device.Client
			for _, id := range []string{"first", "second"} {
				creds := h.device(t, id)
				creds.Now = now
				c, err := device.New(creds, mux, nil)
				require.NoError(t, err)
				defer c.Close()
				require.NoError(t, c.Start())
				all = append(all, c)
			}
			time.Sleep(after)
			require.NoError(t, all[0].Close())
			set.Store(true)
			began := time.Now()
			require.NoError(t, all[1].Open(t.Context()))
			require.LessOrEqual(t, time.Since(began), 31*time.Second)
		})
	}
}

// A device that waits because of an unset clock returns when another one is accepted.
func TestADeviceReturnsWhenTheClockIsSetForAnother(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		mux, set, _ := unset(h)
		failed := make(chan error, 1)
		go func() { failed <- try(t, mux, h.device(t, "first")) }()
		failure, ok := errors.AsType[*transport.Error](<-failed)
		require.True(t, ok)
		require.ErrorIs(t, failure, transport.ClockUnset)
		set.Store(true)
		time.Sleep(time.Minute)
		start(t, mux, h.device(t, "second"))
		select {
		case <-failure.Passed:
		default:
			t.Fatal("the failure has not passed")
		}
	})
}
