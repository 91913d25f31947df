package httpfront

import (
	"net/http"
	"net/url"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

func anyRequest() *web.Request {
	r := &http.Request{URL: &url.URL{Path: "/devices/dev-1/messages/events"}}
	return &web.Request{Request: r, Hub: &hub.Hub{}, C: &hub.Conn{}, ID: identity.Identity{Device: "dev-1"}}
}

// ReadBatch parses the body of a batch of dev-1. The code is that of a refusal.
func ReadBatch(text []byte) ([]hubdata.Message, int) {
	all, bad := readBatch(anyRequest(), text)
	if bad != nil {
		return all, bad.Code
	}
	return all, 0
}

// ReadProperties parses properties named like the headers. The code is that of a refusal.
func ReadProperties(all map[string]string) (hubdata.Message, int) {
	m, bad := message(anyRequest(), nil, all)
	if bad != nil {
		return m, bad.Code
	}
	return m, 0
}
