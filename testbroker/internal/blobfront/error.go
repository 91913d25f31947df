package blobfront

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

var (
	blobNoLength = &files.BlobError{Status: 411, Code: "MissingContentLengthHeader",
		Message: "The Content-Length header was not specified."}
	blobTooLarge = &files.BlobError{Status: 413, Code: "RequestBodyTooLarge",
		Message: "The request body is too large and exceeds the maximum permissible limit."}
	blobCutOff = &files.BlobError{Status: 400, Code: "IncompleteBody",
		Message: "The request body was not complete."}
	blobMissingHeader = &files.BlobError{Status: 400, Code: "MissingRequiredHeader",
		Message: "An HTTP header that's mandatory for this request is not specified."}
	blobBadHeader = &files.BlobError{Status: 400, Code: "InvalidHeaderValue",
		Message: "The value for one of the HTTP headers is not in the correct format."}
	blobNoHeader = &files.BlobError{Status: 400, Code: "UnsupportedHeader",
		Message: "One of the HTTP headers specified in the request is not supported."}
	blobMissingQuery = &files.BlobError{Status: 400, Code: "MissingRequiredQueryParameter",
		Message: "A query parameter that's mandatory for this request is not specified."}
	blobBadQuery = &files.BlobError{Status: 400, Code: "InvalidQueryParameterValue",
		Message: "Value for one of the query parameters specified in the request URI is invalid."}
	blobNoQuery = &files.BlobError{Status: 400, Code: "UnsupportedQueryParameter",
		Message: "One of the query parameters specified in the request URI is not supported."}
	blobBadName = &files.BlobError{Status: 400, Code: "InvalidResourceName",
		Message: "The specified resource name contains invalid characters."}
	blobBadMD5 = &files.BlobError{Status: 400, Code: "InvalidMd5",
		Message: "The MD5 value specified in the request is invalid. The MD5 value " +
			"must be 128 bits and Base64-encoded."}
	blobDamaged = &files.BlobError{Status: 400, Code: "Md5Mismatch",
		Message: "The MD5 value specified in the request did not match with the MD5 value calculated by the server."}
	blobBadID = &files.BlobError{Status: 400, Code: "InvalidBlockId",
		Message: "The specified block ID is invalid. The block ID must be Base64-encoded."}
	blobListTooLong = &files.BlobError{Status: 400, Code: "BlockListTooLong",
		Message: "The block list may not contain more than 50,000 blocks."}
	blobBadXML = &files.BlobError{Status: 400, Code: "InvalidXmlDocument",
		Message: "XML specified is not syntactically valid."}
	blobNoContent = &files.BlobError{Status: 409, Code: "BlobOperationNotSupported",
		Message: "The store keeps hashes only."}

	blobConditionNotMet = &files.BlobError{Status: 412, Code: "ConditionNotMet",
		Message: "The condition specified using HTTP conditional header(s) is not met."}
	blobNotModified = &files.BlobError{Status: 304, Code: "ConditionNotMet",
		Message: "The condition specified using HTTP conditional header(s) is not met."}
	blobExists = &files.BlobError{Status: 409, Code: "BlobAlreadyExists",
		Message: "The specified blob already exists."}
	blobOverwrites = &files.BlobError{Status: 403, Code: "UnauthorizedBlobOverwrite",
		Message: "This request is not authorized to perform blob overwrites."}
	blobNoLease = &files.BlobError{Status: 412, Code: "LeaseNotPresentWithBlobOperation",
		Message: "There is currently no lease on the blob."}
	blobBadMetadata = &files.BlobError{Status: 400, Code: "InvalidMetadata",
		Message: "The specified metadata is invalid. It includes characters that are not permitted."}
	blobEmptyMetadata = &files.BlobError{Status: 400, Code: "EmptyMetadataKey",
		Message: "The key for one of the metadata key-value pairs is empty."}
	blobMuchMetadata = &files.BlobError{Status: 400, Code: "MetadataTooLarge",
		Message: "The size of the specified metadata exceeds the maximum size permitted."}
	blobBadRange = &files.BlobError{Status: 416, Code: "InvalidRange",
		Message: "The range specified is invalid for the current size of the resource."}
	blobLongAnswer = &files.BlobError{Status: 409, Code: "BlobOperationNotSupported",
		Message: "The hub answers with at most 256 MiB; ask for a range."}
	blobOutOfRange = &files.BlobError{Status: 400, Code: "OutOfRangeQueryParameterValue",
		Message: "One of the query parameters specified in the request URI is outside the permissible range."}
	blobBadCredentials = &files.BlobError{Status: 400, Code: "InvalidAuthenticationInfo",
		Message: "Authentication information is not given in the correct format. Check the value of Authorization " +
			"header."}

	blobNoAnswer = &files.BlobError{} // the client has disconnected
	blobBusy     = &files.BlobError{Status: 503, Code: "ServerBusy", Message: "The server is busy."}
	blobInternal = &files.BlobError{Status: 500, Code: "InternalError",
		Message: "The server encountered an internal error. Please retry the request."}
)

// blobErrorOf returns the store's error for a refusal made elsewhere, such as a fault: the usual
// error for its status.
func blobErrorOf(e *web.Error) *files.BlobError {
	for _, known := range []*files.BlobError{blobBadQuery, files.BlobNoAuthentication, files.BlobBadSignature,
		files.BlobNoContainer, blobTooLarge, blobInternal, blobBusy} {
		if known.Status == e.Status() {
			return known
		}
	}
	code := strings.ReplaceAll(http.StatusText(e.Status()), " ", "")
	return &files.BlobError{Status: e.Status(), Code: code, Message: e.Text}
}

// failBlob returns the answer to a request refused by the store, in the store's error format.
func failBlob(q *web.Request, e *files.BlobError) web.Answer {
	a := answer(q, e.Status)
	var body struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}
	body.Code = e.Code
	body.Message = fmt.Sprintf("%s\nRequestId:%s\nTime:%s", e.Message, a.Header.Get("x-ms-request-id"),
		q.Hub.Now().UTC().Format(time.RFC3339Nano))
	text, _ := xml.Marshal(body) // cannot fail: only strings
	a.Body = append([]byte(xml.Header), text...)
	a.Header.Set("Content-Type", "application/xml")
	a.Header.Set("x-ms-error-code", e.Code)
	if q.Method == http.MethodHead || e.Status == http.StatusNotModified {
		a.Body = nil
	}
	return a
}

// failRequest returns the answer to a request refused before the store handles it.
func failRequest(q *web.Request, e *web.Error) web.Answer { return failBlob(q, blobErrorOf(e)) }
