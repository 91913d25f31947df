package sim_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
)

func TestAnAddressThatSwallowsConnectionsLeavesTimeForTheOthers(t *testing.T) {
	for _, addresses := range []int{2, 4} {
		for _, limit := range []time.Duration{0, 5 * time.Second} {
			t.Run(strconv.Itoa(addresses)+" addresses, DialTimeout "+limit.String(), func(t *testing.T) {
				withEachEngine(t, func(t *testing.T, e engine) {
					testkit.In2030(t, func(t *testing.T) {
						hub, creds := e.openHub(t)
						w := e.inMemory(hub, false)
						w.Dial = testkit.OverAddresses(addresses, w.Dial)
						c, err := device.New(creds, e.make(creds, w), &device.Options{DialTimeout: limit})
						require.NoError(t, err)
						defer c.Close()
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						require.NoError(t, c.Open(ctx))
						require.EqualValues(t, 1, c.Stats().Attempts, "the first attempt reaches the hub")
					})
				})
			})
		}
	}
}
