package blobfront

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// A target is what a request is about.
type target struct {
	container, name string          // empty for the account, and for a container
	store           files.BlobStore // nil for the account, and for a container
	onlyNew         bool            // the credentials allow no change of what exists
}

// An operation is a kind of request.
type operation struct {
	rights string // a SAS needs one of these; empty: only the account's key suffices
	do     func(q *web.Request, t *target) (web.Answer, *files.BlobError)
}

// The operations, by method and the query parameters restype and comp.
var (
	blobOperations = map[string]operation{
		"PUT  ":          {"cw", putWhole},
		"PUT  block":     {"cw", putBlock},
		"PUT  blocklist": {"cw", putList},
		"PUT  metadata":  {"w", setMetadata},
		"GET  ":          {"r", getBlob},
		"HEAD  ":         {"r", getBlob},
		"GET  metadata":  {"r", getMetadata},
		"HEAD  metadata": {"r", getMetadata},
		"DELETE  ":       {"d", deleteBlob},
	}
	containerOperations = map[string]operation{
		"PUT container ":     {"", createContainer},
		"DELETE container ":  {"", deleteContainer},
		"GET container ":     {"", getContainer},
		"HEAD container ":    {"", getContainer},
		"GET container list": {"l", listBlobs},
	}
	accountOperations = map[string]operation{"GET  list": {"", listContainers}}
)

func operationName(q *web.Request) string {
	return q.Method + " " + strings.ToLower(q.Query.Get("restype")+" "+q.Query.Get("comp"))
}

// refuse refuses a request for no operation of the store.
func refuse(*web.Request, *target) (web.Answer, *files.BlobError) { return web.Answer{}, blobBadQuery }

// unsupported are headers that would change what a request does. They are refused, because the
// store has no tags, no keys of customers and no copies.
var unsupported = []string{"x-ms-content-crc64", "x-ms-copy-source", "x-ms-encryption-key", "x-ms-encryption-scope",
	"x-ms-if-tags", "x-ms-structured-body", "x-ms-tags"}

// unsupportedQuery are query parameters that select a snapshot or a version, of which the store has
// none, or how a blob is deleted.
var unsupportedQuery = []string{"deletetype", "snapshot", "versionid"}

// operate returns the handler of requests about the account, a container or a blob.
func operate(all map[string]operation) func(q *web.Request) web.Answer {
	return func(q *web.Request) web.Answer {
		t := targetOf(q)
		op, ok := all[operationName(q)]
		if !ok {
			op = operation{"racwdl", refuse}
		}
		if bad := check(q, t); bad != nil {
			return failBlob(q, bad)
		}
		if bad := authorize(q, t, op.rights); bad != nil {
			q.Conn.Refused(q.Request, identity.Identity{}, bad.Status, errors.New(bad.Code))
			return failBlob(q, bad)
		}
		q.Conn.Served()
		if q.Method == http.MethodPut {
			if a, over := putFaults(q); over {
				return a
			}
		}
		if t.name != "" {
			if t.store = q.Hub.Files.Store(t.container); t.store == nil {
				return failBlob(q, files.BlobNoContainer)
			}
		}
		a, bad := op.do(q, t)
		switch bad {
		case nil:
			if q.Method == http.MethodPut {
				q.Hub.Changed.Wake()
			}
			return a
		case blobNoAnswer:
			return web.Answer{Delivery: web.DeliverNothing}
		}
		return failBlob(q, bad)
	}
}

// targetOf returns what a request is about. A path of an upload begins with the container and the
// device, every other one with the account.
func targetOf(q *web.Request) *target {
	if device := q.Vars["device"]; device != "" {
		return &target{container: files.Container, name: device + "/" + q.Vars["name"]}
	}
	// Stored names must not keep the rest of the request's URI in memory.
	return &target{container: strings.Clone(q.Vars["container"]), name: strings.Clone(q.Vars["name"])}
}

// check checks the version, the names and the headers of a request.
func check(q *web.Request, t *target) *files.BlobError {
	if v := q.Header.Get("x-ms-version"); v != "" {
		if _, err := time.Parse(time.DateOnly, v); err != nil {
			return blobBadHeader
		}
	}
	for _, name := range unsupported {
		if q.Header.Get(name) != "" {
			return blobNoHeader
		}
	}
	// The other value deletes the blob with its snapshots.
	if strings.EqualFold(q.Header.Get("x-ms-delete-snapshots"), "only") {
		return blobNoHeader
	}
	if !plainQuery(q.Query) {
		return blobBadQuery
	}
	for _, name := range unsupportedQuery {
		if q.Query.Has(name) {
			return blobNoQuery
		}
	}
	switch {
	case t.container != "" && !files.ValidContainerName(t.container), t.name != "" && !files.ValidBlobName(t.name):
		return blobBadName
	case t.container != files.Container && !files.IsXML(t.name):
		return blobBadName // a list could not hold it
	case q.Header.Get("x-ms-lease-id") != "":
		return blobNoLease
	}
	return nil
}

// plainQuery reports whether the text that a signature covers has one reading: it holds the names
// of parameters in lower case, and each parameter on a line.
func plainQuery(query url.Values) bool {
	for name, values := range query {
		if name != strings.ToLower(name) || strings.ContainsAny(name+strings.Join(values, ""), "\r\n") {
			return false
		}
	}
	return true
}

// authorize checks the request's credentials: a SAS with one of the rights, or the account's key.
func authorize(q *web.Request, t *target, rights string) *files.BlobError {
	if text, ok := strings.CutPrefix(q.Header.Get("Authorization"), "SharedKey "); ok {
		return checkSharedKey(q, text)
	}
	granted, bad := q.Hub.Files.Uploads.Store.Keys.Check(t.container, t.name, q.Query, q.C.TLS != nil, q.Hub.Now())
	switch {
	case bad != nil:
		return bad
	case !strings.ContainsAny(granted, rights):
		return files.BlobNoRight
	}
	t.onlyNew = !strings.Contains(granted, "w")
	return nil
}

// putFaults applies the faults of a request that stores something. If over is true, a is the
// answer.
func putFaults(q *web.Request) (a web.Answer, over bool) {
	if byUploadURI(q.Hub, q.Request) {
		if in := q.TakeRoute(fault.ExpireUpload); in != nil {
			q.Happened(in)
			q.Hub.Files.Uploads.Expire(q.Query.Get("si"))
			q.Hub.Changed.Wake()
			return failBlob(q, files.BlobExpired), true
		}
	}
	if in := q.TakeRoute(fault.SlowBlob); in != nil {
		q.Happened(in)
		if !q.Sleep(in.Fault.Delay) {
			return web.Answer{Delivery: web.DeliverNothing}, true
		}
	}
	return web.Answer{}, false
}

// faultOperations are the operations of blobs that faults select.
var faultOperations = map[string]fault.BlobOperation{"PUT  ": fault.PutBlob, "PUT  block": fault.PutBlock,
	"PUT  blocklist": fault.PutBlockList, "GET  ": fault.GetBlob, "HEAD  ": fault.GetBlob}

// faultOperation returns the request's operation; BlobAny if faults do not select it.
func faultOperation(q *web.Request) fault.BlobOperation {
	return faultOperations[operationName(q)]
}

// byUploadURI reports whether a request has the SAS of an upload: no other one has an identifier.
func byUploadURI(_ *hub.Hub, r *http.Request) bool { return r.URL.Query().Get("si") != "" }

// Routes are the routes of the store: the uploads of devices, the account, its containers and their
// blobs.
var Routes = routes()

func routes() (all []web.Route) {
	for _, r := range []struct {
		kind       fault.RouteKind
		path       string
		operations map[string]operation
		only       func(*hub.Hub, *http.Request) bool
	}{
		{fault.RouteBlob, files.Container + "/{device}/{name...}", blobOperations, byUploadURI},
		{fault.RouteStorage, files.Container + "/{device}/{name...}", blobOperations, nil},
		{fault.RouteStorage, files.AccountPath + "/{container}/{name...}", blobOperations, nil},
		{fault.RouteStorage, files.AccountPath + "/{container}", containerOperations, nil},
		{fault.RouteStorage, files.AccountPath, accountOperations, nil},
		{fault.RouteStorage, files.AccountPath + "/", accountOperations, nil},
	} {
		for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodHead, http.MethodDelete} {
			all = append(all, web.Route{Kind: r.kind, Method: method, Path: r.path, Host: anyHost, For: r.only, Open: true,
				Do: operate(r.operations), Fails: failRequest, Blob: faultOperation})
		}
	}
	return all
}

// anyHost accepts every host name, because a test can give the store any name.
func anyHost(*hub.Hub, string) bool { return true }
