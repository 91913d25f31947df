package files

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// stageMiB stages a block as a front does, which reserves its room while the body arrives.
func stageMiB(s *uploadStore, name, id string, size int64) *BlobError {
	release, bad := s.Reserve(size << 20)
	if bad != nil {
		return bad
	}
	defer release()
	return s.Stage(name, hubdata.BlobBlock{ID: id, Size: size << 20})
}

func newUploadStore(digest bool) *uploadStore {
	s := new(uploadStore)
	s.init(time.Now, new(blobTags), digest)
	s.expect("dev-1/a", "1")
	s.expect("dev-1/b", "2")
	return s
}

func TestStagedBlocksOfUploadsAreBounded(t *testing.T) {
	s := newUploadStore(false)
	for i := range 5 {
		require.Nil(t, stageMiB(s, "dev-1/a", fmt.Sprint(i), 100))
	}
	require.Equal(t, blobUploadsFull, stageMiB(s, "dev-1/a", "5", 100))
	require.Equal(t, blobUploadsFull, stageMiB(s, "dev-1/b", "0", 100), "the bound is one for all uploads")
	for range 5 {
		require.Equal(t, blobUploadsFull, stageMiB(s, "dev-1/a", "0", 100), "a block is replaced when it has arrived")
	}
	require.Nil(t, stageMiB(s, "dev-1/a", "0", 1))

	all := []ListedBlock{{ID: "0", Both: true}, {ID: "1", Both: true}, {ID: "2", Both: true}}
	_, bad := s.Commit(hubdata.Blob{Name: "dev-1/a"}, append(all, all[1], all[1], all[1], all[1]), Anyway)
	require.Equal(t, blobUploadsFull, bad, "a file counts with its size")
	_, bad = s.Commit(hubdata.Blob{Name: "dev-1/a"}, all, Anyway)
	require.Nil(t, bad)
	require.Nil(t, stageMiB(s, "dev-1/b", "0", 300), "blocks that are in no file give room")
	s.forget("dev-1/b", "2")
	require.Equal(t, BlobExpired, stageMiB(s, "dev-1/b", "1", 1), "it was forgotten while the body arrived")
	require.Nil(t, stageMiB(s, "dev-1/a", "6", 300), "and so do forgotten uploads")
	s.clear()
	require.Zero(t, s.of.used+s.of.reserved)
}

func TestAStoreOfHashesHasRoomForAnySize(t *testing.T) {
	s := newUploadStore(true)
	for i := range 9 {
		require.Nil(t, stageMiB(s, "dev-1/a", fmt.Sprint(i), 4000))
	}
	_, bad := s.Commit(hubdata.Blob{Name: "dev-1/a"}, []ListedBlock{{ID: "1", Both: true}, {ID: "2", Both: true}}, Anyway)
	require.Nil(t, bad)
}
