package testbroker

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
	"time"
)

var (
	blobNotFound = &blobError{404, "BlobNotFound", "The specified blob does not exist."}
	blobNoLength = &blobError{411, "MissingContentLengthHeader", "The Content-Length header was not specified."}
	blobTooLarge = &blobError{413, "RequestBodyTooLarge",
		"The request body is too large and exceeds the maximum permissible limit."}
	blobCutOff        = &blobError{400, "IncompleteBody", "The request body was not complete."}
	blobMissingHeader = &blobError{400, "MissingRequiredHeader",
		"An HTTP header that's mandatory for this request is not specified."}
	blobBadHeader = &blobError{400, "InvalidHeaderValue",
		"The value for one of the HTTP headers is not in the correct format."}
	blobNoHeader = &blobError{400, "UnsupportedHeader",
		"One of the HTTP headers specified in the request is not supported."}
	blobMissingQuery = &blobError{400, "MissingRequiredQueryParameter",
		"A query parameter that's mandatory for this request is not specified."}
	blobBadQuery = &blobError{400, "InvalidQueryParameterValue",
		"Value for one of the query parameters specified in the request URI is invalid."}
	blobBadName = &blobError{400, "InvalidResourceName", "The specified resource name contains invalid characters."}
	blobBadMD5  = &blobError{400, "InvalidMd5", "The MD5 value specified in the request is invalid. The MD5 value " +
		"must be 128 bits and Base64-encoded."}
	blobDamaged = &blobError{400, "Md5Mismatch",
		"The MD5 value specified in the request did not match with the MD5 value calculated by the server."}
	blobBadID = &blobError{400, "InvalidBlockId",
		"The specified block ID is invalid. The block ID must be Base64-encoded."}
	blobListTooLong = &blobError{400, "BlockListTooLong", "The block list may not contain more than 50,000 blocks."}
	blobBadXML      = &blobError{400, "InvalidXmlDocument", "XML specified is not syntactically valid."}
	blobNoContent   = &blobError{409, "BlobOperationNotSupported", "The store keeps hashes only."}

	blobNoAnswer = &blobError{} // there is nobody to tell
	blobGone     = &blobError{404, "ContainerNotFound", "The specified container does not exist."}
	blobBusy     = &blobError{503, "ServerBusy", "The server is busy."}
	blobInternal = &blobError{500, "InternalError", "The server encountered an internal error. Please retry the request."}
)

// blobErrorOf is the store's error for a refusal that is not the store's own, such as that of a
// fault: the one that usually comes with the status.
func blobErrorOf(e *httpError) *blobError {
	for _, known := range []*blobError{blobBadQuery, blobNoAuthentication, blobBadSignature, blobGone, blobTooLarge,
		blobInternal, blobBusy} {
		if known.status == e.status() {
			return known
		}
	}
	return &blobError{e.status(), strings.ReplaceAll(http.StatusText(e.status()), " ", ""), e.text}
}

// failBlob is the answer to a request that the store refuses, in the form that it gives its errors.
func (q *httpRequest) failBlob(e *blobError) httpAnswer {
	tracking := q.track()
	var body struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}
	body.Code = e.code
	body.Message = fmt.Sprintf("%s\nRequestId:%s\nTime:%s", e.message, tracking,
		q.hub.now().UTC().Format(time.RFC3339Nano))
	text, _ := xml.Marshal(body) // cannot fail: there are but strings
	a := httpAnswer{status: e.status, header: make(http.Header), body: append([]byte(xml.Header), text...)}
	a.header.Set("Content-Type", "application/xml")
	a.header.Set("x-ms-error-code", e.code)
	a.header.Set("x-ms-request-id", tracking)
	a.header.Set("x-ms-version", q.storageVersion())
	if q.Method == http.MethodHead {
		a.body = nil
	}
	return a
}

// failRequest is the answer to a request that is refused before the store looks at it.
func failRequest(q *httpRequest, e *httpError) httpAnswer { return q.failBlob(blobErrorOf(e)) }
