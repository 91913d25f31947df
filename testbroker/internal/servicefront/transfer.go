package servicefront

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/backend"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

var transferRoutes = serviceRoutes(fault.RouteRegistry, []serviceRow{
	{"POST jobs/create", hubdata.RightRegistryWrite, withBody(createTransfer)},
	{"GET jobs", readers, listTransfers},
	{"GET jobs/{job}", readers, getTransfer},
	{"DELETE jobs/{job}", hubdata.RightRegistryWrite, cancelTransfer},
})

// The types of imports and exports, and how the hub may access their containers.
const (
	importJob     = "import"
	exportJob     = "export"
	keyBased      = "keyBased"      // by the signatures in the URIs
	identityBased = "identityBased" // as the hub itself
)

// The names of files in a container.
const (
	devicesBlob = "devices.txt"
	errorsBlob  = "importErrors.log"
)

// codeBadContainer is the error for a container that the hub must not access. See
// hub.ErrorName.
const codeBadContainer = 400008

// A transferRequest is an import or export as back ends send it.
type transferRequest struct {
	Type                      string `json:"type"`
	InputBlobContainerURI     string `json:"inputBlobContainerUri"`
	InputBlobName             string `json:"inputBlobName"`
	OutputBlobContainerURI    string `json:"outputBlobContainerUri"`
	OutputBlobName            string `json:"outputBlobName"`
	ExcludeKeysInExport       bool   `json:"excludeKeysInExport"`
	StorageAuthenticationType string `json:"storageAuthenticationType"`
	IncludeConfigurations     bool   `json:"includeConfigurations"`
}

// A transferDocument is an import or export as back ends receive it. Its URIs have no signatures.
type transferDocument struct {
	JobID                     string `json:"jobId"`
	Type                      string `json:"type"`
	Status                    string `json:"status"`
	Progress                  int    `json:"progress"`
	StartTimeUTC              string `json:"startTimeUtc"`
	EndTimeUTC                string `json:"endTimeUtc,omitempty"`
	InputBlobContainerURI     string `json:"inputBlobContainerUri,omitempty"`
	InputBlobName             string `json:"inputBlobName,omitempty"`
	OutputBlobContainerURI    string `json:"outputBlobContainerUri"`
	OutputBlobName            string `json:"outputBlobName,omitempty"`
	ExcludeKeysInExport       bool   `json:"excludeKeysInExport"`
	StorageAuthenticationType string `json:"storageAuthenticationType"`
	FailureReason             string `json:"failureReason,omitempty"`
}

func transferOf(t *backend.Transfer) transferDocument {
	d := transferDocument{JobID: t.ID, Type: t.Kind, Status: t.Status, Progress: t.Progress,
		StartTimeUTC: document.TimeText(t.Started), InputBlobContainerURI: t.Input, InputBlobName: t.InputBlob,
		OutputBlobContainerURI: t.Output, OutputBlobName: t.OutputBlob, ExcludeKeysInExport: t.ExcludeKeys,
		StorageAuthenticationType: t.Authentication, FailureReason: t.Reason}
	if !t.Ended.IsZero() {
		d.EndTimeUTC = document.TimeText(t.Ended)
	}
	return d
}

// A place is a file in a container of the hub's own storage.
type place struct {
	uri, container, blob string
}

// createTransfer begins an import or export.
func createTransfer(q *web.Request, d *transferRequest) (web.Answer, error) {
	r, err := d.read(q)
	if err != nil {
		return web.Answer{}, err
	}
	t, err := backend.Of(q.Hub).StartTransfer(r)
	return web.AnswerJSON(transferOf(&t), ""), err
}

// read checks a request, and returns what it asks for.
func (d *transferRequest) read(q *web.Request) (r backend.TransferRequest, err error) {
	h := q.Hub
	r = backend.TransferRequest{ExcludeKeys: d.ExcludeKeysInExport, Authentication: keyBased}
	switch kind := d.StorageAuthenticationType; {
	case strings.EqualFold(kind, identityBased):
		r.Authentication = identityBased
	case kind != "" && !strings.EqualFold(kind, keyBased):
		return r, h.ServiceError(hub.CodeArgumentInvalid, "storageAuthenticationType %.40q, want %s or %s", kind, keyBased,
			identityBased)
	case d.IncludeConfigurations:
		return r, h.ServiceError(hub.CodeArgumentInvalid, "includeConfigurations: this hub transfers devices and modules "+
			"only; leave it out, and use /configurations")
	}
	out, err := placeOf(q, "outputBlob", d.OutputBlobContainerURI, d.OutputBlobName, r.Authentication, "w")
	if err != nil {
		return r, err
	}
	r.Output, r.OutputBlob = out.uri, out.blob
	switch {
	case strings.EqualFold(d.Type, exportJob):
		r.Kind = exportJob
		r.Run = (&export{h, out, d.ExcludeKeysInExport}).run
		return r, nil
	case !strings.EqualFold(d.Type, importJob):
		return r, h.ServiceError(hub.CodeArgumentInvalid, "type %.40q, want %s or %s", d.Type, importJob, exportJob)
	}
	in, err := placeOf(q, "inputBlob", d.InputBlobContainerURI, d.InputBlobName, r.Authentication, "r")
	if err != nil {
		return r, err
	}
	r.Kind, r.Input, r.InputBlob, r.OutputBlob = importJob, in.uri, in.blob, errorsBlob
	out.blob = errorsBlob
	r.Run = (&importer{hub: h, in: in, out: out}).run
	return r, nil
}

// placeOf returns the place that the URI of a container names. It must be the hub's own storage,
// with a signature that grants the right, because a hub must not fetch what a caller names. No
// error shows the URI, which may hold a signature.
func placeOf(q *web.Request, field, uri, blob, authentication, right string) (p place, err error) {
	bad := func(format string, args ...any) (place, error) {
		return place{}, q.Hub.ServiceError(codeBadContainer, field+format, args...)
	}
	u, err := url.Parse(uri)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return bad("ContainerUri: not the URI of a container")
	}
	name, own := strings.CutPrefix(strings.TrimSuffix(u.Path, "/"), "/"+files.AccountPath+"/")
	if !own || !files.ValidContainerName(name) {
		return bad("ContainerUri: not a container of this hub's storage; the hub accesses no other storage")
	}
	granted, refusal := q.Hub.Files.Uploads.Store.Keys.Check(name, "", u.Query(), true, q.Hub.Now())
	switch byIdentity := authentication == identityBased; {
	case byIdentity && !q.Hub.Knows(u.Host):
		return bad("ContainerUri: %.80q is not this hub; the hub accesses no other storage", u.Host)
	case !byIdentity && refusal != nil:
		return bad("ContainerUri: %s; give a URI with a signature of this hub's storage", refusal.Code)
	case !byIdentity && !strings.Contains(granted, right):
		return bad("ContainerUri: its signature does not grant %q", right)
	}
	if q.Hub.Files.Store(name) == nil {
		return bad("ContainerUri: %s", files.BlobNoContainer.Message)
	}
	blob = cmp.Or(blob, devicesBlob)
	if !files.ValidBlobName(blob) || !files.IsXML(blob) {
		return bad("Name: %.80q is not the name of a blob", blob)
	}
	return place{uri: u.Scheme + "://" + u.Host + u.EscapedPath(), container: name, blob: blob}, nil
}

func listTransfers(q *web.Request) (web.Answer, error) {
	all := backend.Of(q.Hub).Transfers()
	documents := make([]transferDocument, len(all))
	for i := range all {
		documents[i] = transferOf(&all[i])
	}
	return web.AnswerJSON(documents, ""), nil
}

func getTransfer(q *web.Request) (web.Answer, error) {
	t, err := backend.Of(q.Hub).Transfer(q.Vars["job"])
	return web.AnswerJSON(transferOf(&t), ""), err
}

func cancelTransfer(q *web.Request) (web.Answer, error) {
	return web.Answer{Status: http.StatusNoContent}, backend.Of(q.Hub).CancelTransfer(q.Vars["job"])
}
