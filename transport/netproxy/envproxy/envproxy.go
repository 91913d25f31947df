// Package envproxy reads the proxy from the environment, for every transport.
//
//	network := netopt.Options{Proxy: envproxy.Find}
//
// It is a separate package because it links net/http.
package envproxy

import (
	"net/http"
	"net/url"

	"github.com/hubline-iot/hubline/transport/netproxy"
)

// Find returns the function that connects to hub: through the proxy that HTTPS_PROXY, HTTP_PROXY
// and NO_PROXY or their lower-case forms name, else directly; see http.ProxyFromEnvironment. The
// environment is read once per process. It fits netopt.Options.Proxy.
func Find(hub *url.URL, direct netproxy.DialFunc) (netproxy.DialFunc, error) {
	return choose(hub, direct)
}

var choose = netproxy.Choose(func(hub *url.URL) (*url.URL, error) {
	return http.ProxyFromEnvironment(&http.Request{URL: hub})
})
