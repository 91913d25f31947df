package hub

import (
	"encoding/base64"
	"fmt"
	"time"
)

// StorageConnectionString returns the connection string of the hub's storage account, for an
// address (host:port) of a port for HTTPS.
func (h *Hub) StorageConnectionString(addr string) string {
	return "DefaultEndpointsProtocol=https;AccountName=" + account +
		";AccountKey=" + base64.StdEncoding.EncodeToString(h.UploadTable.Store.Keys.key[:]) +
		";BlobEndpoint=https://" + addr + "/" + account + ";"
}

// ContainerURL makes a container of the hub's storage account, if there is none of the name, and
// returns its URL with a shared access signature for an address (host:port) of a port for HTTPS.
func (h *Hub) ContainerURL(addr, name string, life time.Duration) (string, error) {
	if !ValidContainerName(name) {
		return "", fmt.Errorf("testbroker: container %q: bad name; take 3 to 63 lower-case letters, digits and single "+
			"hyphens", name)
	}
	defer h.Records.Saved()
	if bad := h.Containers.keep(name); bad != nil {
		return "", fmt.Errorf("testbroker: container %s: %s", name, bad.Message)
	}
	return "https://" + addr + "/" + account + "/" + name + "?" +
		h.UploadTable.Store.Keys.signContainer(name, h.Now().Add(life)), nil
}
