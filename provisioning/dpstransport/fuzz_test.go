package dpstransport_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/provisioning/dpstransport"
)

// FuzzFile loads any file. What was loaded is the same when it is saved and loaded again.
func FuzzFile(f *testing.F) {
	for _, s := range []string{"", "null", "{}",
		`{"Registration":"0ne/registrations/r","Assignment":{"Hub":"h.example.test",` +
			`"DeviceID":"d","Payload":"e30=","Chain":["AQ==",null,""],"SecondKey":true}}`, `{"Registration":"0ne/regis`,
		`{"assignment":{"hub":"h"},"Version":7}`, `{"Registration":"a"}{"Registration":"b"}`, "\x00\x00\x00\x00"} {
		f.Add([]byte(s))
	}
	folder := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(folder, "assignment")
		require.NoError(t, os.WriteFile(path, text, 0o600))
		store := dpstransport.File(path)
		r, err := store.Load()
		if err != nil {
			require.Nil(t, r)
			return
		}
		require.NotNil(t, r)
		require.NoError(t, store.Save(r))
		again, err := store.Load()
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}
