package dpstransport_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
)

func TestFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "assignment")
	store := dpstransport.File(path)
	r, err := store.Load()
	require.NoError(t, err)
	require.Nil(t, r)

	want := &dpstransport.Record{Registration: "0ne/registrations/r", Assignment: provisioning.Assignment{
		Hub: "h.example.test", DeviceID: "d", Substatus: "initialAssignment", Payload: []byte(`{"a":1}`),
		Chain: [][]byte{{1, 2}, {3}}, SecondKey: true}}
	for range 2 {
		require.NoError(t, store.Save(want))
		r, err = store.Load()
		require.NoError(t, err)
		require.Equal(t, want, r)
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file stays")

	for _, damaged := range []string{"", "{", "[]", `{"Assignment":` + strings.Repeat(" ", 300<<10)} {
		require.NoError(t, os.WriteFile(path, []byte(damaged), 0o600))
		_, err = store.Load()
		require.ErrorContains(t, err, "damaged")
	}
	require.Error(t, dpstransport.File(filepath.Join(folder, "none", "assignment")).Save(want))
	_, err = dpstransport.File(folder).Load()
	require.Error(t, err, "a folder")
	full := filepath.Join(folder, "full")
	require.NoError(t, os.MkdirAll(filepath.Join(full, "file"), 0o700))
	require.Error(t, dpstransport.File(full).Save(want), "a folder in its place")
	entries, err = os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 2, "no temporary file stays")
}
