package websocket

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func TestOptionsAreCopied(t *testing.T) {
	o := &Options{Header: http.Header{"A": {"1"}}}
	w := MQTT(o)
	o.Header.Set("A", "2")
	require.Equal(t, "1", w.opt.Header.Get("A"))
}

func TestEachStatusHasAKind(t *testing.T) {
	listed := map[int]transport.Kind{
		400: transport.Protocol, 401: transport.Unauthorized, 402: transport.Forbidden, 403: transport.Forbidden,
		404: transport.NotFound, 405: transport.Protocol,
		406: transport.Protocol, 407: transport.Unauthorized, 408: transport.Timeout, 410: transport.NotFound,
		426: transport.Unsupported, 429: transport.Throttled,
		451: transport.Forbidden, 500: transport.Unavailable, 501: transport.Unsupported, 502: transport.Unavailable,
		503: transport.Unavailable,
		504: transport.Timeout, 505: transport.Unsupported,
	}
	for status, kind := range listed {
		require.Equal(t, kind, kindOf(status), status)
	}
	for status := range 1000 {
		require.Less(t, kindOf(status), transport.RetryExpired)
	}
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
