package testbroker

import (
	"net/http"
)

// uploadRoutes are the requests about uploads to the hub.
var uploadRoutes = []httpRoute{
	{kind: RouteUpload, method: http.MethodPost, path: "devices/{device}/files", do: beginUpload},
	{kind: RouteUploadDone, method: http.MethodPost, path: "devices/{device}/files/notifications", do: endUpload},
	{kind: RouteUploadDone, method: http.MethodPost, path: "devices/{device}/files/notifications/", do: endUpload},
	{kind: RouteUploadDone, method: http.MethodPost, path: "devices/{device}/files/notifications/{correlation}",
		do: endUpload},
}

// uploadCost is the size of messages that an upload counts as, two of them.
const uploadCost = 2 * quotaStep

// beginUpload tells a device where to put a file.
func beginUpload(q *httpRequest) httpAnswer {
	h := q.hub
	var in struct {
		BlobName *string `json:"blobName"`
	}
	if err := q.readJSON(&in); err != nil {
		return q.fail(asServiceError(err))
	}
	switch {
	case in.BlobName == nil || *in.BlobName == "":
		return q.fail(httpErrorf(400005, "blobName is missing"))
	case !validBlobName(q.id.device + "/" + *in.BlobName):
		return q.fail(httpErrorf(400004, "blobName %q is not a valid name", *in.BlobName))
	case h.uploads.opt.NoStore:
		return q.fail(httpErrorf(400014, "the hub has no store"))
	}
	if bad := q.overdrawn(); bad != nil {
		return q.fail(bad)
	}
	up := h.uploads.begin(q.id.device, *in.BlobName, h.now())
	if up == nil {
		return q.fail(httpErrorf(403006, "the device has %d uploads running", MaxUploads))
	}
	h.faults.spend(q.id, up.Started, uploadCost)
	h.event(up.event(), q.c)
	h.changed.wake()
	return answerJSON(struct {
		CorrelationID string `json:"correlationId"`
		HostName      string `json:"hostName"`
		ContainerName string `json:"containerName"`
		BlobName      string `json:"blobName"`
		SASToken      string `json:"sasToken"`
	}{up.CorrelationID, q.storeHost(), container, up.Blob, h.uploads.store.keys.sign(up.Blob, up.CorrelationID,
		up.Expires)},
		"")
}

// storeHost is where the device finds the store.
func (q *httpRequest) storeHost() string {
	if host := q.hub.uploads.opt.Host; host != "" {
		return host
	}
	if real, ok := q.c.raw.(*socket); ok {
		return real.LocalAddr().String()
	}
	return "store." + q.hub.host
}

// endUpload takes a device's word on how an upload went.
func endUpload(q *httpRequest) httpAnswer {
	h := q.hub
	var in struct {
		CorrelationID     string `json:"correlationId"`
		IsSuccess         *bool  `json:"isSuccess"`
		StatusCode        int    `json:"statusCode"`
		StatusDescription string `json:"statusDescription"`
	}
	if err := q.readJSON(&in); err != nil {
		return q.fail(asServiceError(err))
	}
	if id := q.vars["correlation"]; id != "" {
		in.CorrelationID = id
	}
	switch {
	case in.CorrelationID == "":
		return q.fail(httpErrorf(400005, "correlationId is missing"))
	case in.IsSuccess == nil:
		return q.fail(httpErrorf(400019, "isSuccess is missing"))
	}
	up, code := h.uploads.end(q.id.device, in.CorrelationID, *in.IsSuccess, in.StatusCode, in.StatusDescription, h.now())
	if code != 0 {
		return q.fail(httpErrorf(code, "upload %q", in.CorrelationID))
	}
	h.event(up.event(), q.c)
	h.changed.wake()
	return httpAnswer{status: http.StatusNoContent}
}
