// Package files is the hub's storage account: blobs, containers, uploads, and what signs requests.
package files

import (
	"encoding/base64"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// Files are the hub's storage account: the uploads of devices, and the containers of back ends.
type Files struct {
	Uploads    UploadTable
	Containers Containers
	records    *keep.Saver
}

// Init prepares the account. most bounds the uploads, 0 = no bound.
func (f *Files) Init(o hubdata.UploadOptions, most int, now func() time.Time, records *keep.Saver,
	report func(event.Event)) {
	f.records = records
	tags := new(blobTags)
	tags.last.Store(now().UnixMicro())
	f.Containers.init(now, tags, maxContainerBytes, blobStoreFull)
	f.Uploads.now, f.Uploads.event = now, report
	f.Uploads.init(o, most, tags)
	f.addTables()
}

// Clear forgets all files and uploads, and all containers but those that the hub's owner has made.
func (f *Files) Clear() {
	f.Uploads.clear()
	f.Containers.clear()
}

// Store returns the store of a container's blobs; nil if there is none.
func (f *Files) Store(container string) BlobStore {
	if container == Container {
		return &f.Uploads.Store
	}
	if c := f.Containers.Get(container); c != nil {
		return c
	}
	return nil
}

// ConnectionString returns the connection string of the account, for an address (host:port) of a
// port for HTTPS.
func (f *Files) ConnectionString(addr string) string {
	return "DefaultEndpointsProtocol=https;AccountName=" + account +
		";AccountKey=" + base64.StdEncoding.EncodeToString(f.Uploads.Store.Keys.key[:]) +
		";BlobEndpoint=https://" + addr + "/" + account + ";"
}

// ContainerURL makes a container, if there is none of the name, and returns its URL with a shared
// access signature for an address (host:port) of a port for HTTPS.
func (f *Files) ContainerURL(addr, name string, life time.Duration) (string, error) {
	if !ValidContainerName(name) {
		return "", fmt.Errorf("testbroker: container %q: bad name; take 3 to 63 lower-case letters, digits and single "+
			"hyphens", name)
	}
	defer f.records.Saved()
	if bad := f.Containers.keep(name); bad != nil {
		return "", fmt.Errorf("testbroker: container %s: %s", name, bad.Message)
	}
	return "https://" + addr + "/" + account + "/" + name + "?" +
		f.Uploads.Store.Keys.signContainer(name, f.Uploads.now().Add(life)), nil
}
