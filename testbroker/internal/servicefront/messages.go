package servicefront

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/notices"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// messageRoutes are the routes for C2D messages, and for feedback and file notifications.
var messageRoutes = serviceRoutes(fault.RouteServiceMessage, slices.Concat([]serviceRow{
	{"POST devices/{device}/messages/devicebound", hubdata.RightServiceConnect, postC2D},
	{"POST devices/{device}/modules/{module}/messages/devicebound", hubdata.RightServiceConnect, postC2D},
}, noticeRows("feedback", notices.Feedback), noticeRows("filenotifications", notices.FileNotifications)))

func noticeRows(name string, kind notices.Kind) []serviceRow {
	path := "messages/servicebound/" + name
	settle := func(again bool) handler {
		return func(q *web.Request) (web.Answer, error) { return settleNotice(q, kind, again) }
	}
	get := func(q *web.Request) (web.Answer, error) { return getNotice(q, kind) }
	return []serviceRow{
		{"GET " + path, hubdata.RightServiceConnect, get},
		{"DELETE " + path + "/{lock}", hubdata.RightServiceConnect, settle(false)},
		{"POST " + path + "/{lock}/abandon", hubdata.RightServiceConnect, settle(true)},
	}
}

// getNotice locks the next notice and returns it, with the lock token as its ETag.
func getNotice(q *web.Request, kind notices.Kind) (web.Answer, error) {
	n, ok := q.Hub.Notices(kind).Pull()
	if !ok {
		return web.Answer{Status: http.StatusNoContent}, nil
	}
	return web.Answer{Status: http.StatusOK, Body: n.Body, Header: http.Header{
		"Content-Type": {"application/json; charset=utf-8"}, "ETag": {`"` + n.LockToken + `"`},
		"iothub-enqueuedtime": {document.TimeText(n.Enqueued)},
	}}, nil
}

func settleNotice(q *web.Request, kind notices.Kind, again bool) (web.Answer, error) {
	if !q.Hub.Notices(kind).Settle(q.Vars["lock"], again) {
		return web.Answer{}, web.Errorf(412002, "lock %s has ended, or never was; receive the message again", q.Vars["lock"])
	}
	return web.Answer{Status: http.StatusNoContent}, nil
}

// appHeader is the prefix of the names of application properties, in any letter case.
const appHeader = "iothub-app-"

// c2dHeaders maps headers in lower case to the fields of a C2D message.
var c2dHeaders = map[string]func(m *hubdata.C2D) *string{
	"iothub-messageid":       func(m *hubdata.C2D) *string { return &m.MessageID },
	"iothub-correlationid":   func(m *hubdata.C2D) *string { return &m.CorrelationID },
	"iothub-userid":          func(m *hubdata.C2D) *string { return &m.UserID },
	"iothub-contenttype":     func(m *hubdata.C2D) *string { return &m.ContentType },
	"iothub-contentencoding": func(m *hubdata.C2D) *string { return &m.ContentEncoding },
	"iothub-messageschema":   func(m *hubdata.C2D) *string { return &m.Schema },
	"iothub-interface-id":    func(m *hubdata.C2D) *string { return &m.InterfaceID },
	"dt-subject":             func(m *hubdata.C2D) *string { return &m.Component },
	"iothub-ack":             func(m *hubdata.C2D) *string { return &m.Ack },
}

// c2dTimes maps headers to the times of a C2D message.
var c2dTimes = []struct {
	header string
	field  func(m *hubdata.C2D) *time.Time
}{
	{"iothub-expiry", func(m *hubdata.C2D) *time.Time { return &m.Expiry }},
	{"iothub-creationtimeutc", func(m *hubdata.C2D) *time.Time { return &m.CreationTime }},
}

// timeOf parses a time of RFC 3339, or one as HTTP writes it.
func timeOf(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		at, err = http.ParseTime(text)
	}
	return at.UTC(), err
}

// postC2D queues a C2D message, with the properties in the headers.
func postC2D(q *web.Request) (web.Answer, error) {
	m := hubdata.C2D{}
	for name, values := range q.Header {
		lower, value := strings.ToLower(name), values[0]
		if field := c2dHeaders[lower]; field != nil {
			*field(&m) = value
		} else if strings.HasPrefix(lower, appHeader) {
			m.Properties = append(m.Properties, hubdata.Property{Name: lower[len(appHeader):], Value: value})
		}
	}
	slices.SortFunc(m.Properties, func(a, b hubdata.Property) int { return strings.Compare(a.Name, b.Name) })
	m.Ack = strings.ToLower(m.Ack)
	for _, c := range c2dTimes {
		text := q.Header.Get(c.header)
		if text == "" {
			continue
		}
		at, err := timeOf(text)
		if err != nil {
			return web.Answer{}, web.Errorf(hub.CodeArgumentInvalid, "%s %q; write it as %s", c.header, text,
				document.TimeLayout)
		}
		*c.field(&m) = at
	}
	body, bad := q.Read(hubdata.MaxC2D)
	if bad != nil {
		return web.Answer{}, bad
	}
	m.Body = body
	if err := q.Hub.SendC2D(q.ID.String(), m); err != nil {
		return web.Answer{}, c2dError(err, q.ID)
	}
	return web.Answer{Status: http.StatusNoContent}, nil
}

// c2dErrors maps the hub's errors to codes, in the order of the checks.
var c2dErrors = []struct {
	err  error
	code int
}{
	{hub.ErrQueueFull, 403004}, {faults.ErrQuota, 403002}, {hub.ErrClosed, 503001}, {nil, hub.CodeArgumentInvalid},
}

func c2dError(err error, id identity.Identity) *web.Error {
	text := strings.TrimPrefix(err.Error(), "testbroker: ")
	if errors.Is(err, hub.ErrNotFound) {
		return web.AsHTTP(err, id)
	}
	for _, e := range c2dErrors {
		if e.err == nil || errors.Is(err, e.err) {
			return web.Errorf(e.code, "%s", text)
		}
	}
	return nil
}
