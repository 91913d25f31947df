package servicefront

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// A stored file takes the memory that its size counts for, not that of the buffer it comes from.
func TestAStoredFileHasNoSpareRoom(t *testing.T) {
	h, err := hub.New(nil)
	require.NoError(t, err)
	defer h.Close()
	_, bad := h.Files.Containers.Create("c-1", nil)
	require.Nil(t, bad)
	content := append(make([]byte, 0, 1<<20), "a few bytes"...)
	require.NoError(t, store(h, place{container: "c-1", blob: "f"}, content))
	file, ok := h.Files.Store("c-1").Get("f")
	require.True(t, ok)
	require.Equal(t, "a few bytes", string(file.Blocks[0].Content))
	require.Less(t, cap(file.Blocks[0].Content), 100)
}
