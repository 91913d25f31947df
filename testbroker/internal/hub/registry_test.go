package hub

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// The tables by device have what a search of the registry finds, and nothing of what is gone.
func TestTablesByDeviceAgreeWithTheRegistry(t *testing.T) {
	const keep = 5
	h, err := New(&Options{Keep: keep})
	require.NoError(t, err)
	defer h.Close()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		id := identity.Identity{Device: fmt.Sprint("d-", rng.IntN(10))}
		if rng.IntN(2) == 0 {
			id.Module = fmt.Sprint("m-", rng.IntN(3))
		}
		switch rng.IntN(3) {
		case 0:
			_ = h.RemoveDevice(id.String()) // it may not exist
		case 1:
			_, _ = h.add(id, Registration{}) // it may exist
		default:
			_ = h.SendC2D(id.String(), hubdata.C2D{})
		}
		h.checkTables(t)
	}
	for _, id := range h.Identities() {
		_ = h.RemoveDevice(id.String()) // with its device before
	}
	require.Empty(t, h.modules)
	noted := 0
	for _, n := range h.removed.times {
		noted += n
	}
	require.Equal(t, keep, noted)
}

func (h *Hub) checkTables(t *testing.T) {
	t.Helper()
	modules, queues := 0, 0
	for id := range h.registry {
		if id.Module != "" {
			modules++
			require.Contains(t, h.modules[id.Device], id.Module)
			require.Contains(t, h.familyLocked(identity.Identity{Device: id.Device}), id)
		}
	}
	for device, names := range h.modules {
		require.NotEmpty(t, names)
		require.Len(t, h.familyLocked(identity.Identity{Device: device}), len(names)+1)
		modules -= len(names)
	}
	require.Zero(t, modules)
	for device, of := range h.queues {
		queues += len(of)
		require.NotEmpty(t, of)
		require.Len(t, h.queuesOf(device, Boxes[:]...), len(of))
		for name := range of {
			require.True(t, h.registry[name.id] != nil || h.removed.times[name.id] > 0, "%v is forgotten", name)
		}
	}
	require.Len(t, h.queuesOf("", Boxes[:]...), queues)
}

// The hub drops its records of a removed identity with the last of its removals, not with an
// earlier one.
func TestTheLastRemovalOfAnIdentityIsTold(t *testing.T) {
	r := removals{log: keep.History[identity.Identity]{Keep: 2}, times: map[identity.Identity]int{}}
	a, b := identity.Identity{Device: "a"}, identity.Identity{Device: "b"}
	for i, c := range []struct {
		add, old identity.Identity
		last     bool
	}{{add: a}, {add: a}, {b, a, false}, {a, a, false}, {b, b, false}, {b, a, true}} {
		old, last := r.add(c.add)
		require.Equal(t, c.old, old, "removal %d", i)
		require.Equal(t, c.last, last, "removal %d", i)
	}
}
