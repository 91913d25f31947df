package testbroker

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
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

// pull locks the first command that waits, for a client that has asked for it. Such a lock is the
// client's own: it does not end with a connection.
func (q *c2dQueue) pull(c *conn) (C2DRecord, bool) {
	q.mu.Lock()
	defer q.unlock()
	q.dispatchLocked() // what is due ends
	i := slices.IndexFunc(q.waiting, func(e *c2dEntry) bool { return e.State == Enqueued })
	if i < 0 {
		return C2DRecord{}, false
	}
	e := q.waiting[i]
	e.tag, e.LockToken = "", guidText(q.hub.lockToken(e))
	e.pulled = true
	e.Deliveries++
	e.Connection = c.number
	q.becomeLocked(e, Invisible)
	e.locked = time.Now().Add(q.hub.c2d.Lock)
	q.dispatchLocked()
	return e.C2DRecord, true
}

// settle does what a client wants to become of a command that it has pulled; false when the lock is
// not its own any more.
func (q *c2dQueue) settle(lock string, to C2DState) bool {
	q.mu.Lock()
	defer q.unlock()
	q.dispatchLocked()
	i := slices.IndexFunc(q.waiting, func(e *c2dEntry) bool {
		return e.State == Invisible && e.pulled && strings.EqualFold(e.LockToken, lock)
	})
	if i < 0 {
		return false
	}
	if to == Enqueued {
		q.releaseLocked(q.waiting[i])
	} else {
		q.becomeLocked(q.waiting[i], to)
	}
	q.dispatchLocked()
	return true
}
