package httpfront

import (
	"bytes"
	"net/http"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/updates"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// UpdateRoutes returns the routes of the file server of an update service, on the ports of the
// services that it is linked to. linked returns it; nil for none.
func UpdateRoutes(linked func() *updates.Service) []web.Route {
	var all []web.Route
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		all = append(all,
			web.Route{Kind: fault.RouteUpdateFile, Method: method, Path: "updates/files/{device}/{file}/{name}", Open: true,
				Do: func(q *web.Request) web.Answer {
					if s := linked(); s != nil {
						if d, ok := s.File(q.Vars["file"], q.Hub.Taker(q.C, q.ID)); ok {
							return answerDownload(q, d)
						}
					}
					return q.Fail(web.Errorf(404000, "no update has the file %q", q.Vars["file"]))
				}},
			web.Route{Kind: fault.RouteUpdateFile, Method: method, Path: "updates/{package}", Open: true,
				Do: func(q *web.Request) web.Answer {
					if s := linked(); s != nil {
						return answerDownload(q, s.RootKeys(q.Hub.Taker(q.C, q.ID)))
					}
					return q.Fail(web.Errorf(404000, "there is no update service"))
				}},
		)
	}
	return all
}

// answerDownload returns the part of a download that a request is for.
func answerDownload(q *web.Request, d updates.Download) web.Answer {
	r := q.Clone(q.Context())
	if d.Whole {
		r.Header.Del("Range")
	}
	w := recorder{header: http.Header{"Etag": {d.ETag}, "Content-Type": {"application/octet-stream"}}}
	http.ServeContent(&w, r, d.Name, d.Modified, bytes.NewReader(d.Content))
	return web.Answer{Status: w.status, Header: w.header, Body: w.body.Bytes(), Rate: d.Rate}
}

// A recorder keeps an answer, so that faults can change its delivery.
type recorder struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) { r.status = status }

func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }
