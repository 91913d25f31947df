package updates

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// memory is a store in memory.
type memory map[string]hubdata.Record

func (m memory) Load(take func(hubdata.Record) error) error {
	for _, r := range m {
		if err := take(r); err != nil {
			return err
		}
	}
	return nil
}

func (m memory) Save(changes []hubdata.Record) error {
	for _, r := range changes {
		if m[r.Table+"/"+r.Key] = r; r.Value == nil {
			delete(m, r.Table+"/"+r.Key)
		}
	}
	return nil
}

// lever and toaster are updates; the second one refers to the first.
var (
	lever = updatedata.Update{ID: updatedata.UpdateID{Provider: "Contoso", Name: "Lever", Version: "2.0"},
		Compatibility: []map[string]string{{"model": "Lever"}}, Steps: []updatedata.Step{{Handler: "microsoft/script:1"}},
		Files: []updatedata.File{{Name: "a.sh", Content: []byte("hello")}}}
	toaster = updatedata.Update{ID: updatedata.UpdateID{Provider: "Contoso", Name: "Alpha", Version: "1.0"},
		Compatibility: []map[string]string{{"model": "Toaster"}}, Steps: []updatedata.Step{{Reference: lever.ID}}}
)

func TestReferencesAreRestored(t *testing.T) {
	kept := memory{}
	s := newService(t, Options{Store: kept})
	require.ErrorIs(t, s.Publish(toaster), ErrNotFound, "its reference is not there")
	require.NoError(t, s.Publish(lever))
	require.NoError(t, s.Publish(toaster))
	for _, workflow := range []string{"wf-1", "wf-2"} {
		_, err := s.Deploy(updatedata.Deployment{WorkflowID: workflow, Update: toaster.ID, Incompatible: true})
		require.NoError(t, err)
	}
	require.NoError(t, s.Withdraw("wf-2"))
	s.RotateSigningKey()
	before := s.Offer("dev-1", nil)
	s.Close()
	s = newService(t, Options{Store: kept})
	require.Equal(t, before, s.Offer("dev-1", nil))
	require.Equal(t, 2, s.Device("dev-1").Workflow("wf-1").Offers)
	require.Len(t, before.URLs, 2, "the manifest of the other update and its file")
	s.Close()

	delete(kept, tableUpdates+"/"+lever.ID.String())
	s = newService(t, Options{Store: kept})
	require.Empty(t, s.Updates(), "its reference is gone")
	s.Close()
	require.NotContains(t, kept, tableUpdates+"/"+toaster.ID.String())
	require.NotContains(t, kept, tableDeployments+"/wf-1")
}

// FuzzRestore reads any record of a store. A service that takes it works.
func FuzzRestore(f *testing.F) {
	kept := memory{}
	s := newService(f, Options{Store: kept, Seed: 7})
	for _, err := range []error{s.Publish(lever), s.Publish(toaster)} {
		require.NoError(f, err)
	}
	_, err := s.Deploy(updatedata.Deployment{WorkflowID: "wf-1", Update: lever.ID, Incompatible: true})
	require.NoError(f, err)
	require.NotNil(f, s.Offer("dev-1", nil))
	s.Close()
	for _, r := range kept {
		f.Add(r.Table, r.Key, r.Value)
	}
	f.Fuzz(func(t *testing.T, table, key string, value []byte) {
		s, err := New(Options{Store: memory{"": {Table: table, Key: key, Value: value}}})
		if err != nil {
			return
		}
		defer s.Close()
		for _, u := range s.Updates() {
			if _, err := s.Deploy(updatedata.Deployment{Update: u.ID, Incompatible: true}); err != nil {
				t.Fatal(err)
			}
			s.Offer("dev-2", nil)
		}
		s.Devices()
		s.Keys()
	})
}
