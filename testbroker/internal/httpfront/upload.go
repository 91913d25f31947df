package httpfront

import (
	"net/http"
	"strings"
	"unicode"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// UploadRoutes are the routes of uploads, except those of the store.
var UploadRoutes = []web.Route{
	{Kind: fault.RouteUpload, Method: http.MethodPost, Path: "devices/{device}/files", Do: beginUpload},
	{Kind: fault.RouteUploadDone, Method: http.MethodPost, Path: "devices/{device}/files/notifications", Do: endUpload},
	{Kind: fault.RouteUploadDone, Method: http.MethodPost, Path: "devices/{device}/files/notifications/", Do: endUpload},
	{Kind: fault.RouteUploadDone, Method: http.MethodPost, Path: "devices/{device}/files/notifications/{correlation}",
		Do: endUpload},
}

// uploadCost is the message size that an upload counts in quotas: two messages.
const uploadCost = 2 * faults.QuotaStep

func beginUpload(q *web.Request) web.Answer {
	h := q.Hub
	var in struct {
		BlobName *string `json:"blobName"`
	}
	if err := q.ReadJSON(&in); err != nil {
		return q.Fail(web.AsServiceError(err))
	}
	switch {
	case in.BlobName == nil || *in.BlobName == "":
		return q.Fail(web.Errorf(400005, "blobName is missing"))
	case strings.ContainsFunc(*in.BlobName, unicode.IsControl):
		return q.Fail(web.Errorf(400004, "blobName %q contains a control character; choose a name without", *in.BlobName))
	case !files.ValidBlobName(q.ID.Device + "/" + *in.BlobName):
		return q.Fail(web.Errorf(400004, "blobName %q is not a valid name", *in.BlobName))
	case h.Files.Uploads.Opt.NoStore:
		return q.Fail(web.Errorf(400014, "the hub has no store"))
	}
	if bad := overdrawn(q); bad != nil {
		return q.Fail(bad)
	}
	up := h.Files.Uploads.Begin(q.ID.Device, *in.BlobName, h.Now())
	if up == nil {
		return q.Fail(web.Errorf(403006, "the device has %d uploads running", hubdata.MaxUploads))
	}
	h.Faults.Spend(q.ID, up.Started, uploadCost)
	h.Event(files.UploadEvent(*up), q.C)
	h.Changed.Wake()
	return web.AnswerJSON(struct {
		CorrelationID string `json:"correlationId"`
		HostName      string `json:"hostName"`
		ContainerName string `json:"containerName"`
		BlobName      string `json:"blobName"`
		SASToken      string `json:"sasToken"`
	}{up.CorrelationID, storeHost(q), files.Container, up.Blob, h.Files.Uploads.Store.Keys.Sign(up.Blob, up.CorrelationID,
		up.Expires)},
		"")
}

// storeHost returns the host name of the store for the device.
func storeHost(q *web.Request) string {
	if host := q.Hub.Files.Uploads.Opt.Host; host != "" {
		return host
	}
	if real, ok := q.C.Raw.(*hub.Socket); ok {
		return real.LocalAddr().String()
	}
	return "store." + q.Hub.Host
}

// endUpload records a device's report on an upload.
func endUpload(q *web.Request) web.Answer {
	h := q.Hub
	var in struct {
		CorrelationID     string `json:"correlationId"`
		IsSuccess         *bool  `json:"isSuccess"`
		StatusCode        int    `json:"statusCode"`
		StatusDescription string `json:"statusDescription"`
	}
	if err := q.ReadJSON(&in); err != nil {
		return q.Fail(web.AsServiceError(err))
	}
	if id := q.Vars["correlation"]; id != "" {
		in.CorrelationID = id
	}
	switch {
	case in.CorrelationID == "":
		return q.Fail(web.Errorf(400005, "correlationId is missing"))
	case in.IsSuccess == nil:
		return q.Fail(web.Errorf(400019, "isSuccess is missing"))
	}
	up, code := h.Files.Uploads.End(
		q.ID.Device,
		in.CorrelationID,
		*in.IsSuccess,
		in.StatusCode,
		in.StatusDescription,
		h.Now(),
	)
	if code != 0 {
		return q.Fail(web.Errorf(code, "upload %q", in.CorrelationID))
	}
	h.Event(files.UploadEvent(up), q.C)
	h.NotifyUpload(up, storeHost(q))
	h.Changed.Wake()
	return web.Answer{Status: http.StatusNoContent}
}
