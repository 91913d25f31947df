package http_test

import (
	"context"
	"net"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	hubhttp "github.com/hubline-iot/hubline/transport/http"
)

// With a gateway, its host is dialed, and the token is for the hub.
func TestAGateway(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		creds := h.creds(goodKey)
		creds.GatewayHost = "gateway.local"
		o := h.options()
		dial := o.Network.Dial
		dialed := map[string]bool{}
		o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialed[addr] = true
			return dial(ctx, network, addr)
		}
		r, err := h.dial(t, hubhttp.New(o), creds)
		require.NoError(t, err)
		r.send(0, numbered(1)...)
		synctest.Wait()
		require.NoError(t, r.results()[0])
		require.Equal(t, map[string]bool{"gateway.local:80": true}, dialed)
		for _, s := range h.requests {
			require.Contains(t, s.header.Get("Authorization"), "sr="+url.QueryEscape(hostName+"/devices/dev-1"))
		}
	})
}
