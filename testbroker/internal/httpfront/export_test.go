package httpfront

import (
	"net/http"
	"net/url"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

func anyRequest() *web.Request {
	r := &http.Request{URL: &url.URL{Path: "/devices/dev-1/messages/events"}}
	return &web.Request{Request: r, Hub: &hub.Hub{}, C: &hub.Conn{}, ID: hub.Identity{Device: "dev-1"}}
}

// ReadBatch reads the body of a batch of dev-1; the code is that of a refusal.
func ReadBatch(text []byte) ([]hub.Message, int) {
	all, bad := readBatch(anyRequest(), text)
	if bad != nil {
		return all, bad.Code
	}
	return all, 0
}

// ReadProperties reads properties by the names of headers; the code is that of a refusal.
func ReadProperties(all map[string]string) (hub.Message, int) {
	m, bad := message(anyRequest(), nil, all)
	if bad != nil {
		return m, bad.Code
	}
	return m, 0
}
