package interop

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// store is the host name of the hub as file store.
const store = "store." + testbroker.DefaultHostName

// trusting returns an environment variable that makes Node.js trust hubs and provisioning services.
// The device SDK has no other setting for its connections to the store, the other SDKs have none.
func trusting(t testing.TB, services ...interface{ CAPEM() []byte }) string {
	file := filepath.Join(t.TempDir(), "ca.pem")
	var pem []byte
	for _, s := range services {
		pem = append(pem, s.CAPEM()...)
	}
	require.NoError(t, os.WriteFile(file, pem, 0o600))
	return "NODE_EXTRA_CA_CERTS=" + file
}

// content returns the script's file content.
func content(size int) []byte {
	all := make([]byte, size)
	for i := range all {
		all[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return all
}

// uploader is a device whose SDK client uploads files.
type uploader struct {
	*sdk
	deviceID string
}

// upload has the SDK upload a file, and returns its result and the hub's record.
func (u *uploader) upload(how, blob string, size int) (string, hubdata.Upload) {
	u.t.Helper()
	u.tell(map[string]any{"do": how, "name": u.deviceID, "blob": blob, "size": size})
	e := u.next("uploaded", u.deviceID)
	require.Equal(u.t, blob, e.ID)
	all := u.hub.Uploads()
	if len(all) == 0 {
		return e.Text, hubdata.Upload{}
	}
	return e.Text, all[len(all)-1]
}

// succeeds uploads a file that must arrive, in the given number of blocks.
func (u *uploader) succeeds(how, blob string, size, blocks int) hubdata.Upload {
	u.t.Helper()
	text, record := u.upload(how, blob, size)
	require.Empty(u.t, text)
	require.Equal(u.t, u.deviceID+"/"+blob, record.Blob)
	require.Equal(u.t, hubdata.UploadSucceeded, record.State)
	require.EqualValues(u.t, size, record.Size)
	file, ok := u.hub.Blob(record.Blob)
	require.True(u.t, ok)
	require.NoError(u.t, file.Matches(bytes.NewReader(content(size))))
	require.Len(u.t, file.Blocks, blocks)
	return record
}

func (u *uploader) round(round string) {
	u.t.Helper()
	u.succeeds("upload", round+"/one byte.bin", 1, 1)
	u.succeeds("upload", round+"/a b+c&d=e.bin", 9<<20, 3)
	record := u.succeeds("uploadByHand", round+"/by hand", 70_000, 1)
	require.Equal(u.t, "201 by hand", statusOf(record))
	seen(u.t, "%s: files of 1 byte and of 9 MiB in 3 blocks by uploadToBlob, one of 70,000 bytes by "+
		"getBlobSharedAccessSignature and Put Blob: arrived as sent, and the hub was told", round)
}

// trouble tests failures of an upload, and the SDK's reactions.
func (u *uploader) trouble() {
	u.t.Helper()
	cut := u.hub.Inject(fault.Fault{Kind: fault.ResetAfterRequest, Route: fault.RouteBlob, After: 1})
	u.succeeds("upload", "cut.bin", 9<<20, 3)
	require.Equal(u.t, 1, cut.Fired())
	seen(u.t, "a reset in the middle of the blocks: one is sent again, the file arrives as sent")

	refused := u.hub.Inject(fault.Fault{Kind: fault.AnswerStatus, Statuses: []int{403},
		Route: fault.RouteBlob})
	text, record := u.upload("upload", "refused.bin", 100)
	require.Equal(u.t, 1, refused.Fired())
	require.Contains(u.t, text, "UploadToBlob failed")
	require.Equal(u.t, hubdata.UploadFailed, record.State)
	seen(u.t, "403 from the store: %s; the hub was told: %s", text, statusOf(record))

	for _, c := range []struct {
		name string
		when fault.RouteKind
		want string // of the error
	}{
		{"beginning", fault.RouteUpload, "BlobSasError"},
		{"end", fault.RouteUploadDone, "BlobUploadNotificationError"},
	} {
		cut := u.hub.Inject(fault.Fault{Kind: fault.ResetBeforeRequest, Route: c.when})
		text, _ := u.upload("upload", c.name+".bin", 100)
		require.Equal(u.t, 1, cut.Fired())
		require.Contains(u.t, text, c.want)
		u.succeeds("upload", c.name+".bin", 100, 1)
		seen(u.t, "a reset at the %s: %s; the next upload arrives", c.name, text)
	}

	text, _ = u.upload("upload", "größe.bin", 100)
	require.Contains(u.t, text, "BlobSasError")
	seen(u.t, "a name that is not ASCII: %s (the SDK counts characters in Content-Length)", text)
}

func TestDeviceSDKUploads(t *testing.T) {
	for _, way := range sdkTransports {
		if way.service == 443 && !way.web {
			continue // uploads are the same for these: they always use HTTPS
		}
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			hub := hubfixture.Open(t, &testbroker.Options{Uploads: testbroker.UploadOptions{Host: store}})
			s := startSDK(t, way, hub, trusting(t, hub))
			dev, err := hub.AddDevice(deviceID)
			require.NoError(t, err)
			s.open(deviceID, dev, nil)
			u := &uploader{sdk: s, deviceID: deviceID}
			u.round("first connection")
			hub.Drop("")
			// the SDK has noticed the reset on all connections by then; it keeps them for further requests
			s.telemetry(deviceID, "after reset", 1, false)
			u.round("after reset")
			if way.web {
				u.trouble()
			}

			cert := testbroker.NewClientCert("dev-x", time.Time{}, time.Time{})
			dev, err = hub.AddDeviceX509("dev-x", testbroker.Thumbprint(cert.Leaf))
			require.NoError(t, err)
			s.open("dev-x", dev, map[string]any{"cert": string(certPEM(cert.Leaf)), "key": string(keyPEM(t, cert))})
			(&uploader{sdk: s, deviceID: "dev-x"}).round("X.509")
		})
	}
}

func statusOf(u hubdata.Upload) string { return fmt.Sprint(u.StatusCode, " ", u.StatusDescription) }
