// Package envproxy reads the proxy settings of the environment, for every transport.
//
//	network := netopt.Options{Proxy: envproxy.Find}
//
// It is a package of its own because it links net/http.
package envproxy

import (
	"net/http"
	"net/url"
)

// Find returns the proxy for a connection to hub according to HTTPS_PROXY, HTTP_PROXY and NO_PROXY
// or their lower-case forms, nil for none; see http.ProxyFromEnvironment. The environment is read
// once per process. It fits netopt.Options.Proxy.
func Find(hub *url.URL) (*url.URL, error) { return http.ProxyFromEnvironment(&http.Request{URL: hub}) }
