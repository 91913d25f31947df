package files

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

func newContainers() *Containers {
	records, f := new(keep.Saver), new(Files)
	records.Init(nil, nil)
	f.Init(hubdata.UploadOptions{}, 0, time.Now, records, nil)
	return &f.Containers
}

// What a client may choose counts, so no client keeps more in memory than the limit.
func TestABlobCountsWithItsNames(t *testing.T) {
	all := newContainers()
	_, bad := all.Create("c-1", nil)
	require.Nil(t, bad)
	c := all.Get("c-1")
	used := func(change func() *BlobError) int64 {
		before := all.used
		require.Nil(t, change())
		return all.used - before
	}
	stage := func(blob, id string) func() *BlobError {
		return func() *BlobError { return c.Stage(blob, hubdata.BlobBlock{ID: id, Size: 1}) }
	}
	long := strings.Repeat("L", 88)
	require.EqualValues(t, 84, used(stage("l", long))-used(stage("s", "SSSS")))
	require.Zero(t, used(stage("l", long)), "it is replaced")
	commit := func(blob, id, kind string) func() *BlobError {
		return func() *BlobError {
			_, bad := c.Commit(hubdata.Blob{Name: blob, ContentType: kind}, []ListedBlock{{ID: id, Both: true}}, Anyway)
			return bad
		}
	}
	require.Zero(t, used(commit("s", "SSSS", "")))
	require.EqualValues(t, 1000, used(commit("l", long, strings.Repeat("t", 1000))))
	require.EqualValues(t, -84-1000, used(commitOf(c, "l", "SSSS")))
	held := all.used
	all.used = all.most
	_, bad = c.Commit(hubdata.Blob{Name: "new"}, nil, Anyway)
	require.Equal(t, blobStoreFull, bad, "a new name is not counted before")
	all.used = held
	require.Nil(t, all.Delete("c-1", func(*BlobContainer) *BlobError { return nil }))
	require.Zero(t, all.used)
}

// commitOf returns a change that makes a file of one new block.
func commitOf(c *BlobContainer, blob, id string) func() *BlobError {
	return func() *BlobError {
		if bad := c.Stage(blob, hubdata.BlobBlock{ID: id, Size: 1}); bad != nil {
			return bad
		}
		_, bad := c.Commit(hubdata.Blob{Name: blob}, []ListedBlock{{ID: id, Staged: true}}, Anyway)
		return bad
	}
}

// The cost of a page does not grow with the container.
func TestAPageCostsNoMoreThanItsEntries(t *testing.T) {
	all := newContainers()
	_, bad := all.Create("c-1", nil)
	require.Nil(t, bad)
	c := all.Get("c-1")
	for i := range 5000 {
		_, bad := c.Put(hubdata.Blob{Name: fmt.Sprintf("%d/%d", i%2, i), Blocks: make([]hubdata.BlobBlock, 100)}, Anyway)
		require.Nil(t, bad)
	}
	for _, delimiter := range []string{"", "/"} {
		require.LessOrEqual(t, testing.AllocsPerRun(10, func() {
			page, _, _ := c.List("", delimiter, "0", 2)
			require.Len(t, page, 2)
		}), 10.)
	}
}
