package testbroker

import (
	"net/http"
	"strconv"
	"strings"
)

// commandRoutes are the requests about commands. Over HTTP a device asks for them; there are none
// to modules.
var commandRoutes = []httpRoute{
	{kind: RouteReceive, method: http.MethodGet, path: "devices/{device}/messages/devicebound", do: getCommand},
	{kind: RouteSettle, method: http.MethodDelete, path: "devices/{device}/messages/devicebound/{lock}",
		do: deleteCommand},
	{kind: RouteSettle, method: http.MethodPost, path: "devices/{device}/messages/devicebound/{lock}/abandon",
		do: abandonCommand},
}

// getCommand locks the next command and hands it out, with the lock token as its ETag.
func getCommand(q *httpRequest) httpAnswer {
	queue, err := q.hub.queue(q.id)
	if err != nil {
		return q.fail(asHTTP(err, q.id))
	}
	r, ok := queue.pull(q.c)
	q.hub.changed.wake()
	if !ok {
		return httpAnswer{status: http.StatusNoContent}
	}
	return httpAnswer{status: http.StatusOK, header: r.httpHeader(), body: r.C2D.Body}
}

// deleteCommand completes a command, or with the parameter reject, which needs no value, ends it
// otherwise.
func deleteCommand(q *httpRequest) httpAnswer {
	if q.query.Has("reject") {
		return q.settle(Rejected)
	}
	return q.settle(Completed)
}

func abandonCommand(q *httpRequest) httpAnswer { return q.settle(Enqueued) }

// settle does what a client wants to become of the command that it has locked. The token of the
// path may stand in If-Match as well.
func (q *httpRequest) settle(to C2DState) httpAnswer {
	lock := q.vars["lock"]
	if tag := q.Header.Values("If-Match"); len(tag) > 0 && tag[0] != "*" && !strings.EqualFold(strings.Trim(tag[0], `"`),
		lock) {
		return q.fail(httpErrorf(412001, "If-Match %s is not the lock token %s of the path", tag[0], lock))
	}
	queue, err := q.hub.queue(q.id)
	if err != nil {
		return q.fail(asHTTP(err, q.id))
	}
	if !queue.settle(lock, to) {
		return q.fail(httpErrorf(412002, "lock %s has ended, or never was", lock))
	}
	q.hub.changed.wake()
	return httpAnswer{status: http.StatusNoContent}
}

// httpHeader is a command's properties as they go over HTTP. Those that no header can carry are
// left out.
func (r *C2DRecord) httpHeader() http.Header {
	m := r.C2D
	header := http.Header{"Content-Type": {"application/octet-stream"}, "ETag": {`"` + r.LockToken + `"`}}
	for _, p := range m.Properties {
		if _, again := header[appHeader+p.Name]; !again && isToken(p.Name) {
			header[appHeader+p.Name] = []string{p.Value}
		}
	}
	expiry := ""
	if !m.Expiry.IsZero() {
		expiry = m.Expiry.UTC().Format(timeLayout)
	}
	for name, value := range map[string]string{
		"iothub-messageid": m.MessageID, "iothub-correlationid": m.CorrelationID, "iothub-userid": m.UserID,
		"iothub-contenttype": m.ContentType, "iothub-contentencoding": m.ContentEncoding, "iothub-ack": m.Ack,
		"iothub-expiry":         expiry,
		"iothub-to":             "/" + identity{r.DeviceID, r.ModuleID}.resource() + "/messages/devicebound",
		"iothub-sequencenumber": strconv.Itoa(r.Sequence), "iothub-enqueuedtime": r.Enqueued.UTC().Format(timeLayout),
		"iothub-deliverycount": strconv.Itoa(r.Deliveries - 1),
	} {
		if value != "" {
			header[name] = []string{value}
		}
	}
	return header
}
