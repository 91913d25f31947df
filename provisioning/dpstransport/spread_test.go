package dpstransport_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/transport"
)

// The random wait before a registration takes no slot of a shared limiter: the clients of one
// process wait at the same time.
func TestTheSpreadTakesNoSlotOfTheLimiter(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		limiter := device.NewDialLimiter(1, 0)
		sign, err := transport.SharedKey(ownKey)
		require.NoError(t, err)
		var all []*device.Client
		for i := range 20 {
			id := &provisioning.Identity{IDScope: "0ne00ABCDEF", RegistrationID: "reg-" + strconv.Itoa(i), Sign: sign}
			registrar, err := provisioning.New(id, &service{}, &provisioning.Options{Spread: 10 * time.Minute})
			require.NoError(t, err)
			h := &hubs{t: t, block: true}
			h.signers[0], _ = sign(t.Context(), []byte("text"))
			tr, err := dpstransport.New(registrar, h.make, nil)
			require.NoError(t, err)
			c, err := device.New(tr.Credentials(), tr, &device.Options{Dials: limiter, DialTimeout: 5 * time.Second})
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			require.NoError(t, c.Start())
			all = append(all, c)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 11*time.Minute)
		defer cancel()
		for _, c := range all {
			require.NoError(t, c.Open(ctx))
		}
	})
}

// A registration is held back once, also if its first attempt fails.
func TestTheSpreadIsOnce(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{fail: refuse(transport.Network)}, &hubs{}
		tr := setupWith(t, s, h, &provisioning.Options{Spread: time.Hour}, nil)
		var waits []time.Duration
		cfg := &transport.Config{Wait: func(_ context.Context, d time.Duration) error {
			waits = append(waits, d)
			return nil
		}}
		for range 3 {
			began := time.Now()
			_, err := tr.Dial(t.Context(), cfg)
			require.ErrorIs(t, err, transport.Network)
			require.Zero(t, time.Since(began))
		}
		require.Len(t, waits, 1)
		require.Positive(t, waits[0])
		require.Less(t, waits[0], time.Hour)
	})
}
