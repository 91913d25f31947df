package interop

import (
	"context"
	"crypto/tls"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
)

// storage opens a port of the hub's storage account.
func (h *eventsHub) storage() string {
	h.t.Helper()
	addr, err := h.hub.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	require.NoError(h.t, err)
	return addr.String()
}

// blobOptions make clients of azblob trust a hub.
func blobOptions(t testing.TB, hub *testbroker.Hub) *container.ClientOptions {
	way := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: hub.RootCAs()}}
	t.Cleanup(way.CloseIdleConnections)
	return &container.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: way}}}
}

// goContainers returns the container "checkpoints" as azblob makes it of each kind of credentials.
func goContainers(t testing.TB, h *eventsHub) map[string]*container.Client {
	t.Helper()
	addr, options := h.storage(), blobOptions(t, h.hub)
	byKey, err := container.NewClientFromConnectionString(h.hub.StorageConnectionString(addr), "checkpoints", options)
	require.NoError(t, err)
	url, err := h.hub.ContainerURL(addr, "checkpoints", time.Hour)
	require.NoError(t, err)
	bySAS, err := container.NewClientWithNoCredential(url, options)
	require.NoError(t, err)
	return map[string]*container.Client{"connection string": byKey, "shared access signature": bySAS}
}

func TestGoEventHubsProcessorKeepsCheckpointsInTheHub(t *testing.T) {
	h := newEventsHub(t, nil)
	for way, c := range goContainers(t, h) {
		store, err := checkpoints.NewBlobStore(c, nil)
		require.NoError(t, err)
		from := h.sent
		h.send(20)
		require.Equal(t, bodiesFrom(from, from+20), process(t, h, store, 20), way)
		h.send(5)
		require.Equal(t, bodiesFrom(from+20, from+25), process(t, h, store, 5), way)
	}
	seen(t, "azeventhubs/v2/checkpoints with azblob: twice 20 events, then 5 more from the checkpoint")
}

// Two claims of a partition with the same ETag: one of them fails.
func TestGoEventHubsOwnershipGoesToOneProcessor(t *testing.T) {
	h := newEventsHub(t, nil)
	for way, c := range goContainers(t, h) {
		store, err := checkpoints.NewBlobStore(c, nil)
		require.NoError(t, err)
		claim := func(partition, owner string, tag *azcore.ETag) []azeventhubs.Ownership {
			got, err := store.ClaimOwnership(soon(t), []azeventhubs.Ownership{{ConsumerGroup: "g", EventHubName: way,
				FullyQualifiedNamespace: "hub", PartitionID: partition, OwnerID: owner, ETag: tag}}, nil)
			require.NoError(t, err)
			return got
		}
		first := claim("0", "a", nil)
		require.Len(t, first, 1)
		require.Empty(t, claim("0", "b", nil), "it exists")
		require.Len(t, claim("0", "b", first[0].ETag), 1)
		require.Empty(t, claim("0", "a", first[0].ETag), "it has changed")
		require.Len(t, claim("1", "a", nil), 1)
		all, err := store.ListOwnership(soon(t), "hub", way, "g", nil)
		require.NoError(t, err)
		var owners []string
		for _, o := range all {
			owners = append(owners, o.PartitionID+o.OwnerID)
			require.WithinDuration(t, time.Now(), o.LastModifiedTime, time.Minute)
		}
		require.Equal(t, []string{"0b", "1a"}, owners)
	}
	seen(t, "azeventhubs/v2/checkpoints: ownership by ETag, with the account's key and with a SAS")
}

func TestGoBlobClientIsRefused(t *testing.T) {
	h := newEventsHub(t, nil)
	addr, options := h.storage(), blobOptions(t, h.hub)
	whole := h.hub.StorageConnectionString(addr)
	c, err := container.NewClientFromConnectionString(whole, "one", options)
	require.NoError(t, err)
	_, err = c.Create(soon(t), nil)
	require.NoError(t, err)
	one := c.NewBlockBlobClient("a")
	_, err = one.Upload(soon(t), streaming.NopCloser(strings.NewReader("body")), nil)
	require.NoError(t, err)

	read, err := c.GetSASURL(sas.ContainerPermissions{Read: true}, time.Now().Add(time.Hour), nil)
	require.NoError(t, err)
	bySAS, err := container.NewClientWithNoCredential(read, options)
	require.NoError(t, err)
	got, err := bySAS.NewBlobClient("a").DownloadStream(soon(t), nil)
	require.NoError(t, err)
	require.NoError(t, got.Body.Close())
	require.EqualValues(t, 4, *got.ContentLength)
	_, err = bySAS.NewBlobClient("a").Delete(soon(t), nil)
	require.True(t, bloberror.HasCode(err, bloberror.AuthorizationPermissionMismatch), err)
	other, err := container.NewClientWithNoCredential(strings.Replace(read, "/one?", "/two?", 1), options)
	require.NoError(t, err)
	_, err = other.NewBlobClient("a").GetProperties(soon(t), &blob.GetPropertiesOptions{})
	require.ErrorContains(t, err, "403")
	wrong, err := container.NewClientFromConnectionString(strings.Replace(whole, "AccountKey=", "AccountKey=AAAA", 1),
		"one", options)
	require.NoError(t, err)
	_, err = wrong.GetProperties(soon(t), nil)
	require.True(t, bloberror.HasCode(err, bloberror.AuthenticationFailed), err)
	seen(t, "azblob: a SAS for reading reads one container only, and another key is refused")
}

func TestBlobSDKUsesAContainer(t *testing.T) {
	t.Parallel()
	h := newEventsHub(t, nil)
	s := startEventsScript(t, h)
	s.tell(map[string]any{"do": "blobs", "name": "c", "account": h.hub.StorageConnectionString(h.storage()),
		"container": "files"})
	for _, want := range [][2]string{
		{"exists", "false"},
		{"create", "true"},
		{"create again", "409 ContainerAlreadyExists"},
		{"upload", "true"},
		{"upload new", "409 BlobAlreadyExists"},
		{"upload changed", "412 ConditionNotMet"},
		{"read", `"0123456789"`},
		{"read a part", `"234"`},
		{"properties", `[10,{"one":"1"}]`},
		{"blocks", "100000"},
		{"list", `["blocks","dir/größe 1&2.txt"]`},
		{"pages", "[1,1]"},
		{"folders", `["dir/","blocks"]`},
		{"signed list", "403 AuthorizationPermissionMismatch"},
		{"sign", `"0123456789"`},
		{"delete", "true"},
		{"read deleted", "404 BlobNotFound"},
		{"containers", `["files"]`},
		{"delete container", "true"},
		{"list deleted", "404 ContainerNotFound"},
	} {
		e := s.next("blob", "c")
		require.Equal(t, want, [2]string{e.Topic, e.Payload + e.Text})
	}
	seen(t, "@azure/storage-blob: 20 results about a container and its blobs")
}

func TestEventHubsSDKKeepsCheckpointsInTheHub(t *testing.T) {
	t.Parallel()
	h := newEventsHub(t, nil)
	addr := h.storage()
	url, err := h.hub.ContainerURL(addr, "checkpoints", time.Hour)
	require.NoError(t, err)
	s := startEventsScript(t, h)
	h.send(20)
	s.openWith("first", map[string]any{"connectionString": h.web, "container": url})
	s.read("all", "first", "", "earliest", nil)
	require.Equal(t, bodiesFrom(0, 20), s.bodies("all", 20))
	s.stop("all")
	h.send(5)
	s.openWith("second", map[string]any{"connectionString": h.web, "container": "checkpoints",
		"account": h.hub.StorageConnectionString(addr)})
	s.read("rest", "second", "", "earliest", nil)
	require.Equal(t, bodiesFrom(20, 25), s.bodies("rest", 5))
	seen(t, "@azure/eventhubs-checkpointstore-blob: 20 events, then 5 more from the checkpoint, by a SAS and by the key")
	s.openWith("third", map[string]any{"connectionString": h.web, "container": url})
	s.read("more", "third", "", "earliest", nil)
	require.Equal(t, []int{2, 2}, owned(t, h, addr))
	seen(t, "@azure/eventhubs-checkpointstore-blob: two processors share the partitions 2 to 2")
	s.stop("rest")
	s.stop("more")
}

// owned waits until two processors own the partitions in equal parts, and returns how many each
// owns.
func owned(t testing.TB, h *eventsHub, addr string) []int {
	t.Helper()
	c, err := container.NewClientFromConnectionString(h.hub.StorageConnectionString(addr), "checkpoints",
		blobOptions(t, h.hub))
	require.NoError(t, err)
	var shares []int
	eventually(t, "the partitions are shared", func() bool {
		of := make(map[string]int)
		pages := c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Include: container.ListBlobsInclude{Metadata: true}})
		for pages.More() {
			page, err := pages.NextPage(soon(t))
			require.NoError(t, err)
			for _, b := range page.Segment.BlobItems {
				if owner := b.Metadata["ownerid"]; owner != nil && *owner != "" {
					of[*owner]++
				}
			}
		}
		shares = shares[:0]
		for _, n := range of {
			shares = append(shares, n)
		}
		slices.Sort(shares)
		return slices.Equal(shares, []int{2, 2})
	})
	return shares
}

// Two processors share the partitions, and each event sent then is read.
func TestGoEventHubsProcessorsShareThePartitions(t *testing.T) {
	h := newEventsHub(t, nil)
	addr := h.storage()
	c, err := container.NewClientFromConnectionString(h.hub.StorageConnectionString(addr), "checkpoints",
		blobOptions(t, h.hub))
	require.NoError(t, err)
	_, err = c.Create(soon(t), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	read := make(chan string, 10)
	for range 2 {
		store, err := checkpoints.NewBlobStore(c, nil)
		require.NoError(t, err)
		p := newProcessor(t, h, store)
		go func() { ended <- p.Run(ctx) }() // ends with ctx
		go readAll(ctx, p, read)            // ends with ctx
	}
	require.Equal(t, []int{2, 2}, owned(t, h, addr))
	h.send(3)
	got := make(map[string]bool)
	for len(got) < 3 {
		select {
		case b := <-read:
			got[b] = true
		case <-soon(t).Done():
			require.Fail(t, "the processors read no more", "%v", got)
		}
	}
	cancel()
	for range 2 {
		<-ended
	}
	seen(t, "azeventhubs/v2/checkpoints: two processors share the partitions 2 to 2")
}
