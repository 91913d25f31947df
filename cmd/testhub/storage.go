package main

import (
	"net"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
)

// The container that testhub makes, for checkpoints of event processors, and how long its signature
// is valid.
const (
	checkpoints    = "checkpoints"
	checkpointLife = 365 * 24 * time.Hour
)

// readyStorage has what clients of Azure blob storage need.
type readyStorage struct {
	ConnectionString string `json:"connectionString,omitempty"`
	Container        string `json:"container,omitempty"` // the URL of the container, with its signature
}

// newReadyStorage makes the container. Without a port for HTTPS there is no storage.
func newReadyStorage(hub *testbroker.Hub, at readyHub) (r readyStorage, err error) {
	addr, ok := at.Addresses["https"]
	if !ok {
		return r, nil
	}
	// Clients tell the account from the container in the path when the host is an IP address.
	if host, _, err := net.SplitHostPort(addr); err != nil || net.ParseIP(host).IsUnspecified() {
		addr = net.JoinHostPort(hub.HostName(), strconv.Itoa(at.Ports["https"]))
	}
	r.ConnectionString = hub.StorageConnectionString(addr)
	r.Container, err = hub.ContainerURL(addr, checkpoints, checkpointLife)
	return r, err
}

func (r *readyStorage) rows(row func(what, v string)) {
	for _, s := range []string{r.ConnectionString, r.Container} {
		if s != "" {
			row("storage", s)
		}
	}
}
