package servicefront

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// An ETag is good for one change, so a removal does not take an unseen update with it.
func TestARemovalDoesNotLoseAnUpdate(t *testing.T) {
	h, err := hub.New(nil)
	require.NoError(t, err)
	defer h.Close()
	id := identity.Identity{Device: "dev-1"}
	for range 1000 {
		_, err := h.AddDevice(id.Device)
		require.NoError(t, err)
		var used sync.Map // the ETags of updates
		var updates sync.WaitGroup
		for range 8 {
			updates.Go(func() {
				for {
					d, err := documentOf(h, id)
					if err != nil {
						return
					}
					if updateIdentity(h, id, hub.Registration{}, d.ETag) == nil {
						used.Store(d.ETag, true)
					}
				}
			})
		}
		var removal string
		for removal == "" {
			d, err := documentOf(h, id)
			require.NoError(t, err)
			if removeIdentity(h, id, d.ETag) == nil {
				removal = d.ETag
			}
		}
		updates.Wait()
		_, updated := used.Load(removal)
		require.False(t, updated)
	}
}
