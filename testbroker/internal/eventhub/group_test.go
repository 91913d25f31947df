package eventhub_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/internal/eventhub"
)

// readers joins readers to one partition and records which ones were excluded.
type readers struct {
	t      *testing.T
	groups *eventhub.Groups
	ended  map[string]string
}

func newReaders(t *testing.T) *readers {
	return &readers{t, eventhub.NewGroups(), map[string]string{}}
}

func (s *readers) join(name string, epoch int64, at eventhub.Address) (*eventhub.Reader, *eventhub.Error) {
	r := &eventhub.Reader{Name: name, Epoch: epoch}
	r.End = func(why *eventhub.Error) {
		require.Equal(s.t, eventhub.Stolen, why.Reason)
		require.NotContains(s.t, s.ended, name, "it ends once")
		s.ended[name] = why.Error()
	}
	return r, s.groups.Join(at, r)
}

var place = eventhub.Address{Group: "$Default"}

func TestHigherEpochExcludesReaders(t *testing.T) {
	s := newReaders(t)
	for _, name := range []string{"a", "b"} {
		_, err := s.join(name, eventhub.NoEpoch, place)
		require.Nil(t, err)
	}
	_, err := s.join("c", 0, place)
	require.Nil(t, err)
	require.Len(t, s.ended, 2, "an epoch excludes readers without one")
	_, err = s.join("d", 0, place)
	require.Nil(t, err)
	require.Contains(t, s.ended["c"], "New receiver 'd' with higher epoch of '0' is created hence current receiver "+
		"'c' with epoch '0' is getting disconnected.")
	d, err := s.join("d", 5, place)
	require.Nil(t, err)
	require.Len(t, s.ended, 4)

	_, err = s.join("low", 4, place)
	require.Equal(t, eventhub.Stolen, err.Reason)
	require.Contains(t, err.Error(), "Receiver 'd' with a higher epoch '5' already exists. Receiver 'low' with epoch 4 "+
		"cannot be created.")
	_, err = s.join("none", eventhub.NoEpoch, place)
	require.Equal(t, eventhub.Stolen, err.Reason)
	require.Contains(t, err.Error(), "At least one receiver for the endpoint is created with epoch of '5'")

	s.groups.Leave(d)
	_, err = s.join("none", eventhub.NoEpoch, place)
	require.Nil(t, err)
}

func TestGroupsAndPartitionsAreApart(t *testing.T) {
	s := newReaders(t)
	for _, at := range []eventhub.Address{place, {Group: "$Default", Partition: 1}, {Group: "second"}} {
		_, err := s.join(fmt.Sprint(at), 0, at)
		require.Nil(t, err)
	}
	require.Empty(t, s.ended)
}

func TestSixthReaderIsRefused(t *testing.T) {
	s := newReaders(t)
	var all []*eventhub.Reader
	for i := range 5 {
		r, err := s.join(fmt.Sprint(i), eventhub.NoEpoch, place)
		require.Nil(t, err)
		all = append(all, r)
	}
	_, err := s.join("sixth", eventhub.NoEpoch, place)
	require.Equal(t, eventhub.TooMany, err.Reason)
	s.groups.Leave(all[2])
	s.groups.Leave(all[2])
	_, err = s.join("sixth", eventhub.NoEpoch, place)
	require.Nil(t, err)
	_, err = s.join("seventh", eventhub.NoEpoch, place)
	require.Equal(t, eventhub.TooMany, err.Reason)
}

func TestExcludedReaderDoesNotRemoveItsSuccessor(t *testing.T) {
	s := newReaders(t)
	a, err := s.join("a", 1, place)
	require.Nil(t, err)
	_, err = s.join("b", 2, place)
	require.Nil(t, err)
	s.groups.Leave(a)
	_, err = s.join("c", 1, place)
	require.Equal(t, eventhub.Stolen, err.Reason)
}
