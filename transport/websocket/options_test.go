package websocket

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport/netopt"
)

func TestOptionsAreCopied(t *testing.T) {
	o := &Options{Header: http.Header{"A": {"1"}}}
	w := MQTT(o)
	o.Header.Set("A", "2")
	require.Equal(t, "1", w.opt.Header.Get("A"))
}

func TestTheRequestNamesAnIPv6HostInBrackets(t *testing.T) {
	device, server := net.Pipe()
	defer device.Close()
	host := make(chan string, 1)
	go func() {
		defer server.Close()
		if r, err := http.ReadRequest(bufio.NewReader(server)); err != nil {
			host <- err.Error()
		} else {
			host <- r.Host + r.URL.Path
		}
	}()
	tunnel := MQTT(&Options{Path: "/mqtt"})
	_, err := tunnel.Open(context.Background(), device, netopt.Peer{Host: "::1"})
	require.Error(t, err)
	require.Equal(t, "[::1]/mqtt", <-host)
}
