package blobfront

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

var (
	blobNotFound = &hub.BlobError{Status: 404, Code: "BlobNotFound", Message: "The specified blob does not exist."}
	blobNoLength = &hub.BlobError{Status: 411, Code: "MissingContentLengthHeader",
		Message: "The Content-Length header was not specified."}
	blobTooLarge = &hub.BlobError{Status: 413, Code: "RequestBodyTooLarge",
		Message: "The request body is too large and exceeds the maximum permissible limit."}
	blobCutOff        = &hub.BlobError{Status: 400, Code: "IncompleteBody", Message: "The request body was not complete."}
	blobMissingHeader = &hub.BlobError{Status: 400, Code: "MissingRequiredHeader",
		Message: "An HTTP header that's mandatory for this request is not specified."}
	blobBadHeader = &hub.BlobError{Status: 400, Code: "InvalidHeaderValue",
		Message: "The value for one of the HTTP headers is not in the correct format."}
	blobNoHeader = &hub.BlobError{Status: 400, Code: "UnsupportedHeader",
		Message: "One of the HTTP headers specified in the request is not supported."}
	blobMissingQuery = &hub.BlobError{Status: 400, Code: "MissingRequiredQueryParameter",
		Message: "A query parameter that's mandatory for this request is not specified."}
	blobBadQuery = &hub.BlobError{Status: 400, Code: "InvalidQueryParameterValue",
		Message: "Value for one of the query parameters specified in the request URI is invalid."}
	blobBadName = &hub.BlobError{Status: 400, Code: "InvalidResourceName",
		Message: "The specified resource name contains invalid characters."}
	blobBadMD5 = &hub.BlobError{Status: 400, Code: "InvalidMd5",
		Message: "The MD5 value specified in the request is invalid. The MD5 value " +
			"must be 128 bits and Base64-encoded."}
	blobDamaged = &hub.BlobError{Status: 400, Code: "Md5Mismatch",
		Message: "The MD5 value specified in the request did not match with the MD5 value calculated by the server."}
	blobBadID = &hub.BlobError{Status: 400, Code: "InvalidBlockId",
		Message: "The specified block ID is invalid. The block ID must be Base64-encoded."}
	blobListTooLong = &hub.BlobError{Status: 400, Code: "BlockListTooLong",
		Message: "The block list may not contain more than 50,000 blocks."}
	blobBadXML = &hub.BlobError{Status: 400, Code: "InvalidXmlDocument",
		Message: "XML specified is not syntactically valid."}
	blobNoContent = &hub.BlobError{Status: 409, Code: "BlobOperationNotSupported",
		Message: "The store keeps hashes only."}

	blobNoAnswer = &hub.BlobError{} // the client has disconnected
	blobGone     = &hub.BlobError{Status: 404, Code: "ContainerNotFound",
		Message: "The specified container does not exist."}
	blobBusy     = &hub.BlobError{Status: 503, Code: "ServerBusy", Message: "The server is busy."}
	blobInternal = &hub.BlobError{Status: 500, Code: "InternalError",
		Message: "The server encountered an internal error. Please retry the request."}
)

// blobErrorOf returns the store's error for a refusal made elsewhere, such as a fault: the usual
// error for its status.
func blobErrorOf(e *web.Error) *hub.BlobError {
	for _, known := range []*hub.BlobError{blobBadQuery, hub.BlobNoAuthentication, hub.BlobBadSignature, blobGone,
		blobTooLarge, blobInternal, blobBusy} {
		if known.Status == e.Status() {
			return known
		}
	}
	code := strings.ReplaceAll(http.StatusText(e.Status()), " ", "")
	return &hub.BlobError{Status: e.Status(), Code: code, Message: e.Text}
}

// failBlob returns the answer to a request refused by the store, in the store's error format.
func failBlob(q *web.Request, e *hub.BlobError) web.Answer {
	tracking := track(q)
	var body struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}
	body.Code = e.Code
	body.Message = fmt.Sprintf("%s\nRequestId:%s\nTime:%s", e.Message, tracking,
		q.Hub.Now().UTC().Format(time.RFC3339Nano))
	text, _ := xml.Marshal(body) // cannot fail: only strings
	a := web.Answer{Status: e.Status, Header: make(http.Header), Body: append([]byte(xml.Header), text...)}
	a.Header.Set("Content-Type", "application/xml")
	a.Header.Set("x-ms-error-code", e.Code)
	a.Header.Set("x-ms-request-id", tracking)
	a.Header.Set("x-ms-version", storageVersion(q))
	if q.Method == http.MethodHead {
		a.Body = nil
	}
	return a
}

// failRequest returns the answer to a request refused before the store handles it.
func failRequest(q *web.Request, e *web.Error) web.Answer { return failBlob(q, blobErrorOf(e)) }
