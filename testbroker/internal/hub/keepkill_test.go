package hub

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
	"github.com/hubline-iot/hubline/testbroker/internal/notices"
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
func restored(t *testing.T, s hubdata.Store, o Options) *Hub {
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
		partition := h.Telemetry.PartitionOf("dev-1")
		go h.Store(hubdata.Message{DeviceID: "dev-1", Body: []byte("x")})
		synctest.Wait()
		read := make(chan int, 1)
		go func() {
			all, _, _ := h.Telemetry.Read(nil, partition, 0, 10)
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
	n, ok := h.Notices(notices.Feedback).Pull()
	require.True(t, ok)
	require.Contains(t, string(n.Body), `"deviceGenerationId":"`+d.GenerationID+`"`)
	require.NoError(t, h.Close())
}

// A message whose times are in a zone of 24 hours can be written to the store, too.
func TestTimesOfMessagesAreKeptInUTC(t *testing.T) {
	s := records{}
	h := restored(t, s, Options{})
	_, err := h.AddDevice("dev-1")
	require.NoError(t, err)
	at := time.Date(2130, 1, 1, 0, 0, 0, 0, time.FixedZone("", 24*60*60))
	require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{CreationTime: at, Expiry: at}))
	require.NoError(t, h.Close())
	h = restored(t, s, Options{})
	kept := h.QueueLog("dev-1", Commands)[0].C2D
	require.Equal(t, at.UTC(), kept.CreationTime)
	require.Equal(t, at.UTC(), kept.Expiry)
	require.NoError(t, h.Close())
}

// Feedback that no back end has settled is there after a kill, in order, with its deliveries.
func TestFeedbackSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := records{}
		stores := make(map[*Hub]records)
		run := func() (*Hub, *notices.Queue) {
			own := maps.Clone(s)
			h := restored(t, own, Options{})
			t.Cleanup(func() { require.NoError(t, h.Close()) })
			stores[h] = own
			return h, h.Notices(notices.Feedback)
		}
		kill := func(h *Hub) {
			h.Records.Saved()
			s = maps.Clone(stores[h])
		}
		pull := func(q *notices.Queue) notices.Notice {
			n, ok := q.Pull()
			require.True(t, ok)
			return n
		}
		h, q := run()
		for _, body := range []string{"1", "2", "3", "4"} {
			q.Add([]byte(body))
		}
		first, second, third := pull(q), pull(q), pull(q)
		require.True(t, q.Settle(second.LockToken, false))
		require.True(t, q.Settle(third.LockToken, true))
		h.Notices(notices.FileNotifications).Add([]byte("the file is gone"))
		kill(h)

		h, q = run()
		require.False(t, q.Settle(first.LockToken, false), "its lock is that of the earlier run")
		for _, want := range []struct {
			body       string
			deliveries int
		}{{"1", 2}, {"3", 2}, {"4", 1}} {
			n := pull(q)
			require.Equal(t, want.body, string(n.Body))
			require.Equal(t, want.deliveries, n.Deliveries, want.body)
			require.True(t, n.Enqueued.Equal(first.Enqueued))
		}
		_, ok := q.Pull()
		require.False(t, ok)
		_, ok = h.Notices(notices.FileNotifications).Pull()
		require.False(t, ok)
		q.Add([]byte("5"))
		kill(h)

		// One that is delivered too often is dropped, by the run after its last delivery, too.
		for range 10 - 2 {
			h, q = run()
			for _, want := range []string{"1", "3", "4", "5"} {
				require.Equal(t, want, string(pull(q).Body))
			}
			kill(h)
		}
		h, q = run()
		require.Equal(t, "4", string(pull(q).Body))
		require.Equal(t, "5", string(pull(q).Body))
		kill(h)
		require.NotContains(t, s, recordName{notices.TableFeedback, keep.Key(1)})

		// What nobody takes ends an hour after it came, whoever runs.
		h, q = run()
		time.Sleep(time.Hour)
		synctest.Wait()
		kill(h)
		for name := range s {
			require.NotEqual(t, notices.TableFeedback, name.table)
		}
		q.Add([]byte("6"))
		kill(h)
		require.Contains(t, s, recordName{notices.TableFeedback, keep.Key(6)})
		h.Reset()
		kill(h)
		require.NotContains(t, s, recordName{notices.TableFeedback, keep.Key(6)})
	})
}

// An outcomes is a Store that compares the ended messages with their feedback.
type outcomes struct {
	records
	ended, feedback, late int
}

func (s *outcomes) Save(changes []hubdata.Record) error {
	for _, r := range changes {
		switch {
		case r.Table == tableWaiting && r.Value == nil:
			s.ended++
		case r.Table == notices.TableFeedback && r.Value != nil:
			s.feedback++
		}
	}
	if s.ended > s.feedback {
		s.late++
	}
	return s.records.Save(changes)
}

// A kill between the outcome of a message and its feedback loses neither: the feedback is in the
// store first, or at the same time.
func TestFeedbackIsKeptBeforeTheMessageEnds(t *testing.T) {
	const messages = 2000
	s := &outcomes{records: records{}}
	h := restored(t, s, Options{C2D: hubdata.C2DOptions{Queue: 1}})
	_, err := h.AddDevice("dev-1")
	require.NoError(t, err)
	for range messages {
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: "full"}))
		require.Equal(t, 1, h.Purge("dev-1", Commands))
	}
	require.NoError(t, h.Close())
	require.Equal(t, messages, s.ended)
	require.Zero(t, s.late)
}
