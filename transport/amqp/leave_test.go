package amqp_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// dice returns random numbers for a test in real time. Its seed alone does not reproduce a run.
func dice(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// spin waits without yielding the processor, for times too short for a sleep.
func spin(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}

// A device that is closed at any moment does not affect the others on the connection. It runs in
// real time because the positions of the goroutines at that moment matter.
func TestADeviceThatLeavesAtAnyMoment(t *testing.T) {
	h := newHub(t)
	mux := amqp.NewMux(h.options())
	good, err := device.New(h.CredsWith(t, ""), mux, nil)
	require.NoError(t, err)
	require.NoError(t, good.Open(t.Context()))
	require.NoError(t, good.Send(t.Context(), numbered(0)))
	guests := make([]*transport.Credentials, 50)
	for i := range guests {
		guests[i] = h.device(t, fmt.Sprintf("guest-%d", i))
	}
	dice := dice(t)
	for i := range 2000 {
		c, err := device.New(guests[i%len(guests)], mux, nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Enqueue(t.Context(), numbered(i), nil))
		spin(time.Duration(dice.IntN(120)) * time.Microsecond)
		require.NoError(t, c.Close())
		require.EqualValues(t, 1, good.Stats().Connections, "guest %d", i)
	}
	require.NoError(t, good.Send(t.Context(), numbered(1)))
	require.EqualValues(t, 1, h.dials.Load())
	require.NoError(t, good.Close())
}

// The same for a device that is closed while it joins, with and without CBS, and with the least
// possible number of AMQP sessions.
func TestADeviceThatGivesUpAtAnyMoment(t *testing.T) {
	direct := &amqp.Addresses{Telemetry: "/devices/{device}/messages/events"}
	for name, c := range map[string]struct {
		addresses *amqp.Addresses
		highest   uint16 // channel-max; 0: many
	}{
		"CBS": {nil, 0}, "addresses": {direct, 0}, "CBS, few sessions": {nil, 3}, "addresses, few sessions": {direct, 3},
	} {
		t.Run(name, func(t *testing.T) {
			h := smallHub(t, c.highest)
			creds := h.device(t, "dev-1")
			o := h.options()
			addresses := c.addresses
			if addresses != nil {
				o.Addresses = addresses
				creds = asUser(t, creds, creds)
			}
			mux := amqp.NewMux(o)
			good := start(t, mux, creds)
			dice := dice(t)
			for range 2000 {
				ctx, cancel := context.WithCancel(t.Context())
				quit := make(chan struct{})
				go func() {
					defer close(quit)
					spin(time.Duration(dice.IntN(150)) * time.Microsecond)
					cancel()
				}()
				s, err := mux.Dial(ctx, &transport.Config{Creds: creds, Window: 1, Queue: 1, Sink: &sink{}})
				<-quit
				if err == nil {
					require.Error(t, s.Run(ctx))
				}
				select {
				case <-good.over:
					t.Fatal(good.err)
				default:
				}
			}
			good.requireSends("x")
			require.EqualValues(t, 1, h.dials.Load())
			for range 3 { // sessions that were left behind would block its channel
				r := start(t, mux, creds)
				r.requireSends("y")
				r.cancel()
				<-r.over
			}
		})
	}
}
