package hub

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// A slowStore is a Store whose Save waits until it is open.
type slowStore struct {
	records
	open chan struct{}
}

func (s *slowStore) Save(changes []hubdata.Record) error {
	<-s.open
	return s.records.Save(changes)
}

// restored opens a hub on a store.
func restored(t *testing.T, s Store, o Options) *Hub {
	o.Store = s
	h, err := New(&o)
	require.NoError(t, err)
	require.NoError(t, h.Restore())
	return h
}

// A position of an event that a kill could take away is not given to a reader.
func TestReadersGetOnlySavedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{records{}, make(chan struct{})}
		h := restored(t, s, Options{})
		partition := h.Events.PartitionOf("dev-1")
		go h.Store(hubdata.Message{DeviceID: "dev-1", Body: []byte("x")})
		synctest.Wait()
		read := make(chan int, 1)
		go func() {
			all, _, _ := h.ReadEvents(nil, partition, 0, 10)
			read <- len(all)
		}()
		synctest.Wait()
		require.Empty(t, read, "the store has nothing")
		close(s.open)
		require.Equal(t, 1, <-read)
		require.NoError(t, h.Close())
	})
}

// Feedback names the generation of the device to which the message was sent, also after a restart.
func TestFeedbackHasTheGenerationAfterARestart(t *testing.T) {
	s := records{}
	h := restored(t, s, Options{})
	d, err := h.AddDevice("dev-1")
	require.NoError(t, err)
	require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: "full", Expiry: time.Now().Add(time.Hour)}))
	require.NoError(t, h.Close())
	h = restored(t, s, Options{Now: func() time.Time { return time.Now().Add(2 * time.Hour) }})
	n, ok := h.Notices(Feedback).Pull()
	require.True(t, ok)
	require.Contains(t, string(n.Body), `"deviceGenerationId":"`+d.GenerationID+`"`)
	require.NoError(t, h.Close())
}
