package atomicfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestALinkStaysAndItsFileIsReplaced(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "disk"), 0o700))
	file, link := filepath.Join(folder, "disk", "state"), filepath.Join(folder, "state")
	for _, names := range []string{file, filepath.Join("disk", "state")} {
		if err := os.Symlink(names, link); err != nil {
			t.Skipf("SKIPPED: no symbolic links: %v", err)
		}
		for _, want := range []string{"first", "second"} { // without the file, and with it
			require.NoError(t, Write(link, []byte(want)))
			to, err := os.Readlink(link)
			require.NoError(t, err)
			require.Equal(t, names, to)
			text, err := Read(file, 100)
			require.NoError(t, err)
			require.Equal(t, want, string(text))
		}
		require.NoError(t, os.Remove(link))
		require.NoError(t, os.Remove(file))
	}
}
