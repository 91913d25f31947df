package httpfront

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// C2DRoutes are the routes of C2D messages. Over HTTP a device polls for them; modules have none.
var C2DRoutes = []web.Route{
	{Kind: fault.RouteReceive, Method: http.MethodGet, Path: "devices/{device}/messages/devicebound", Do: getC2D},
	{Kind: fault.RouteSettle, Method: http.MethodDelete, Path: "devices/{device}/messages/devicebound/{lock}",
		Do: completeC2D},
	{Kind: fault.RouteSettle, Method: http.MethodPost, Path: "devices/{device}/messages/devicebound/{lock}/abandon",
		Do: abandonC2D},
}

// getC2D locks the next C2D message and returns it, with the lock token as its ETag.
func getC2D(q *web.Request) web.Answer {
	queue, err := q.Hub.Queue(q.ID, hub.Commands)
	if err != nil {
		return q.Fail(web.AsHTTP(err, q.ID))
	}
	r, ok := queue.Pull(q.C)
	q.Hub.Changed.Wake()
	if !ok {
		return web.Answer{Status: http.StatusNoContent}
	}
	return web.Answer{Status: http.StatusOK, Header: httpHeader(&r), Body: r.C2D.Body}
}

// completeC2D completes a C2D message, or rejects it if the query has the parameter reject, which
// needs no value.
func completeC2D(q *web.Request) web.Answer {
	if q.Query.Has("reject") {
		return settle(q, hubdata.C2DRejected)
	}
	return settle(q, hubdata.C2DCompleted)
}

func abandonC2D(q *web.Request) web.Answer { return settle(q, hubdata.C2DEnqueued) }

// settle applies a client's outcome to the C2D message that it has locked. If-Match may repeat the
// token of the path.
func settle(q *web.Request, to hubdata.C2DState) web.Answer {
	lock := q.Vars["lock"]
	if tag := q.Header.Values("If-Match"); len(tag) > 0 && tag[0] != "*" && !strings.EqualFold(strings.Trim(tag[0], `"`),
		lock) {
		return q.Fail(web.Errorf(412001, "If-Match %s is not the lock token %s of the path", tag[0], lock))
	}
	queue, err := q.Hub.Queue(q.ID, hub.Commands)
	if err != nil {
		return q.Fail(web.AsHTTP(err, q.ID))
	}
	if !queue.Settle(lock, to) {
		return q.Fail(web.Errorf(412002, "lock %s has ended, or never was", lock))
	}
	q.Hub.Changed.Wake()
	return web.Answer{Status: http.StatusNoContent}
}

// httpHeader returns the properties of a C2D message as HTTP headers. Properties that no header can
// carry are left out.
func httpHeader(r *hubdata.C2DRecord) http.Header {
	m := r.C2D
	header := http.Header{"Content-Type": {"application/octet-stream"}, "ETag": {`"` + r.LockToken + `"`}}
	for _, p := range m.Properties {
		if _, again := header[appHeader+p.Name]; !again && isToken(p.Name) {
			header[appHeader+p.Name] = []string{p.Value}
		}
	}
	for name, value := range map[string]string{
		"iothub-messageid": m.MessageID, "iothub-correlationid": m.CorrelationID, "iothub-userid": m.UserID,
		"iothub-contenttype": m.ContentType, "iothub-contentencoding": m.ContentEncoding, "iothub-ack": m.Ack,
		"iothub-expiry": document.TimeText(m.Expiry), "iothub-creationtimeutc": document.TimeText(m.CreationTime),
		"iothub-to": hub.AddressOf(r, "/messages/devicebound"), "iothub-messageschema": m.Schema,
		"iothub-interface-id": m.InterfaceID, "dt-subject": m.Component,
		"iothub-connection-device-id": m.ConnectionDeviceID, "iothub-connection-module-id": m.ConnectionModuleID,
		"iothub-sequencenumber": strconv.Itoa(r.Sequence), "iothub-enqueuedtime": document.TimeText(r.Enqueued),
		"iothub-deliverycount": strconv.Itoa(r.Deliveries - 1),
	} {
		if value != "" {
			header[name] = []string{value}
		}
	}
	return header
}
