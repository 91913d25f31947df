package testbroker

import (
	"maps"
	"net/http"
	"strconv"
)

// An httpAnswer is what a request is answered with.
type httpAnswer struct {
	status int
	header http.Header // may be nil
	body   []byte
}

// send answers the request.
func (q *httpRequest) send(a httpAnswer) {
	header := q.w.Header()
	maps.Copy(header, a.header)
	header.Set("Date", q.hub.now().UTC().Format(http.TimeFormat))
	if a.status != http.StatusNoContent && a.status >= 200 {
		header.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	q.w.WriteHeader(a.status)
	q.w.Write(a.body)
}
