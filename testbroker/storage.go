package testbroker

import "time"

// StorageConnectionString returns the connection string of the hub's storage account, for an
// address (host:port) of [PortHTTPS]. Clients of Azure blob storage take it; they must trust
// [Hub.RootCAs]. The account has containers of block blobs with metadata and conditions, for stores
// of checkpoints. They are in memory, and in the store of the options if there is one: at most 100
// containers, 10,000 blobs and 256 MiB. [Hub.Reset] deletes them.
func (h *Hub) StorageConnectionString(addr string) string {
	return h.hub.Files.ConnectionString(addr)
}

// ContainerURL makes a container of the hub's storage account, if there is none of the name, and
// returns its URL with a shared access signature for an address (host:port) of [PortHTTPS]. The
// signature grants all rights to the container's blobs for the time life. [Hub.Reset] deletes the
// blobs, and keeps the container.
func (h *Hub) ContainerURL(addr, name string, life time.Duration) (string, error) {
	return h.hub.Files.ContainerURL(addr, name, life)
}
