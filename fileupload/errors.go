package fileupload

import (
	"encoding/json"
	"encoding/xml"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/way"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

const proto = "http"

// protocol is what the connections below are made for.
var protocol = way.Protocol{Name: proto, Secure: "443", Plain: "80", Kind: protocolKind}

// StatusError is an answer of the hub or of storage that refused a request: the cause of a *transport.Error, reachable with errors.As.
type StatusError struct {
	// Service is "hub" or "storage".
	Service string
	// Status is HTTP's.
	Status int
	// Code is the service's own: a hub's number, such as "403006", or storage's word, such as "AuthenticationFailed". Empty when it gave none.
	Code string
	// Message is the first line of the service's text, at most 200 bytes of it, without anything secret.
	Message string
	// RequestID is the service's name for the request, for its support. Empty when it gave none.
	RequestID string

	hint string
}

// Error gives service, status, code and message.
func (e *StatusError) Error() string {
	text := e.Service + " answered " + strconv.Itoa(e.Status)
	if e.Code != "" {
		text += " " + e.Code
	}
	if e.Message != "" {
		text += " (" + e.Message + ")"
	}
	return text + e.hint
}

// HTTPStatusCode is Status.
func (e *StatusError) HTTPStatusCode() int { return e.Status }

// meaning is what an answer means. The hint, which may be empty, says what helps.
type meaning struct {
	kind transport.Kind
	hint string
}

// statusTable is what a status means at both services, where no code says more. Statuses that are not listed: 5xx are Unavailable, 3xx Protocol, 4xx Invalid, others Unknown.
var statusTable = map[int]transport.Kind{
	400: transport.Invalid,
	401: transport.Unauthorized,
	403: transport.Forbidden,
	404: transport.NotFound,
	405: transport.Unsupported,
	408: transport.Timeout,
	409: transport.Conflict,
	411: transport.Protocol,
	412: transport.Conflict,
	413: transport.TooLarge,
	415: transport.Unsupported,
	429: transport.Throttled,
	499: transport.Unavailable,
	500: transport.Unavailable,
	501: transport.Unsupported,
	502: transport.Unavailable,
	503: transport.Unavailable,
	504: transport.Unavailable,
	505: transport.Unsupported,
}

// hubTable has the codes of a hub whose status does not say it all.
var hubTable = map[string]meaning{
	correlationInvalid: {transport.Conflict, ""},
	correlationExpired: {transport.Conflict, ""},

	"400014": {transport.Unsupported, "; give the hub a storage container for uploads"},
	"400017": {transport.Unsupported, "; check the hub's storage container for uploads"},
	"400020": {transport.Unsupported, "; check the hub's storage container for uploads"},
	"400021": {transport.Unavailable, ""},
	"400024": {transport.Timeout, ""},
	"400027": {transport.Unavailable, ""},
	"400029": {transport.Unavailable, ""},
	"400030": {transport.Unavailable, ""},
	"401001": {transport.NotFound, "; check the hub's name"},
	"403002": {transport.Quota, ""},
	"403003": {transport.Quota, ""},
	"403004": {transport.Quota, ""},
	"403006": {transport.Quota, "; a device has 10 uploads at a time, and one whose end the hub was not told counts until its URI expires"},
	"403007": {transport.Quota, ""},
	"403010": {transport.Unsupported, ""},
	"403012": {transport.Unauthorized, "; enable the device"},
	"404012": {transport.Unavailable, ""},
}

const (
	correlationInvalid = "400015"
	correlationExpired = "400016"
)

// storageTable has the codes of storage whose status does not say it all. Source: the pages "Common REST API error codes" and "Blob service error codes" of the storage services' REST reference.
var storageTable = map[string]meaning{
	"AccountBeingCreated":             {transport.Unavailable, ""},
	"AccountIsDisabled":               {transport.Forbidden, "; enable the storage account"},
	"AuthenticationFailed":            {transport.Unauthorized, ""},
	"AuthorizationFailure":            {transport.Forbidden, "; check the storage account's firewall"},
	"AuthorizationPermissionMismatch": {transport.Forbidden, ""},
	"AuthorizationProtocolMismatch":   {transport.Forbidden, "; use TLS"},
	"AuthorizationSourceIPMismatch":   {transport.Forbidden, ""},
	"BlobArchived":                    {transport.Conflict, "; use another name"},
	"BlobImmutableDueToPolicy":        {transport.Conflict, "; use another name"},
	"BlockCountExceedsLimit":          {transport.TooLarge, "; raise Options.BlockSize"},
	"BlockListTooLong":                {transport.TooLarge, "; raise Options.BlockSize"},
	"ContainerBeingDeleted":           {transport.NotFound, ""},
	"ContainerDisabled":               {transport.Forbidden, ""},
	"Crc64Mismatch":                   {transport.Network, "; the data was damaged on the way"},
	"InternalError":                   {transport.Unavailable, ""},
	"InvalidAuthenticationInfo":       {transport.Unauthorized, ""},
	"InvalidBlobOrBlock":              {transport.Conflict, "; another program may have left unfinished blocks under this name, which last a week: use another name"},
	"InvalidBlobType":                 {transport.Conflict, "; there is a blob of another type: use another name"},
	"InvalidBlockList":                {transport.Conflict, "; another upload of the same name ended meanwhile: upload again, or use another name"},
	"Md5Mismatch":                     {transport.Network, "; the data was damaged on the way"},
	"NoAuthenticationInformation":     {transport.Unauthorized, ""},
	"OperationTimedOut":               {transport.Timeout, ""},
	"ServerBusy":                      {transport.Throttled, ""},
	"SystemInUse":                     {transport.Unavailable, ""},
}

func statusKind(status int) transport.Kind {
	if kind, ok := statusTable[status]; ok {
		return kind
	}
	switch {
	case status >= 600 || status < 200:
		return transport.Unknown
	case status >= 500:
		return transport.Unavailable
	case status >= 400:
		return transport.Invalid
	}
	return transport.Protocol // 2xx that was not asked for, redirections
}

// refusal is the *transport.Error for an answer that is not the one hoped for.
func (a *answer) refusal(table map[string]meaning, e *StatusError, now time.Time) *transport.Error {
	e.Status = a.status
	e.RequestID = shorten(a.header.Get("x-ms-request-id"))
	e.Code, e.Message = shorten(e.Code), shorten(e.Message)
	m, ok := table[e.Code]
	if !ok {
		m.kind = statusKind(a.status)
	}
	e.hint = m.hint
	after, _ := retrypolicy.RetryAfterHeaders(a.header.Get, now)
	return &transport.Error{Kind: m.kind, Op: transport.OpSend, Proto: proto, RetryAfter: after, Err: e}
}

// hubRefusal reads what a hub said. Its code stands in the body: as a number in a JSON text within the JSON, or, in the older form, as a name in a text.
func hubRefusal(a *answer, now time.Time) *transport.Error {
	e := &StatusError{Service: "hub"}
	var outer struct{ Message string }
	var inner struct {
		ErrorCode json.Number `json:"errorCode"`
		Message   string      `json:"message"`
	}
	if json.Unmarshal(a.body, &outer) == nil {
		if json.Unmarshal([]byte(outer.Message), &inner) == nil && inner.ErrorCode != "" {
			e.Code, e.Message = inner.ErrorCode.String(), inner.Message
		} else {
			e.Message = outer.Message
		}
	}
	if e.Code == "" {
		e.Code = a.header.Get("iothub-errorcode")
	}
	if code, ok := hubNames[e.Code]; ok {
		e.Code = code
	}
	r := a.refusal(hubTable, e, now)
	if skew, known := a.skew(now); known && r.Kind == transport.Unauthorized && (skew > badClock || skew < -badClock) {
		e.hint += "; the device's clock is off by " + skew.Round(time.Second).String() + ": set it"
	}
	return r
}

// hubNames are the numbers of those codes that matter here, for hubs that give the name alone.
var hubNames = map[string]string{
	"DefaultStorageEndpointNotConfigured":        "400014",
	"InvalidFileUploadCorrelationId":             correlationInvalid,
	"ExpiredFileUploadCorrelationId":             correlationExpired,
	"DeviceMaximumActiveFileUploadLimitExceeded": "403006",
	"IotHubQuotaExceeded":                        "403002",
	"DeviceDisabled":                             "403012",
	"IotHubFailingOver":                          "404012",
}

// badClock is how far off a clock may be before a hub refuses tokens for it, roughly.
const badClock = 4 * time.Minute

// skew is how far the local clock is ahead of the service's.
func (a *answer) skew(now time.Time) (time.Duration, bool) {
	at, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		return 0, false
	}
	return now.Sub(at), true
}

// storageRefusal reads what storage said: the code in a header, else in XML.
func storageRefusal(a *answer, now time.Time) *transport.Error {
	var body struct{ Code, Message string }
	if err := xml.Unmarshal(a.body, &body); err != nil {
		body.Message = ""
	}
	if code := a.header.Get("x-ms-error-code"); code != "" {
		body.Code = code
	}
	return a.refusal(storageTable, &StatusError{Service: "storage", Code: body.Code, Message: body.Message}, now)
}

// shorten is what is kept of a peer's text: the first line, without control characters, and without what could be a signature.
func shorten(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	text = strings.TrimSpace(text)
	if strings.Contains(strings.ToLower(text), "sig=") || strings.Contains(text, "SharedAccessSignature") {
		return "text left out, for there is a signature in it"
	}
	if len(text) > 200 {
		text = text[:200]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return -1
		}
		return r
	}, text)
}

// protocolKind is for way.Protocol: what it means that no HTTP came back.
func protocolKind(err error) (kind transport.Kind, hint string, ok bool) {
	if strings.Contains(err.Error(), "malformed HTTP") { // package net/http has no type for it
		return transport.Protocol, "; the peer does not speak HTTP: check host and port", true
	}
	return 0, "", false
}

// A stepError says which part of an upload failed.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// A twoErrors is what failed, and what failed after that.
type twoErrors struct {
	first  error
	joint  string
	second error
}

func (e *twoErrors) Error() string   { return e.first.Error() + e.joint + e.second.Error() }
func (e *twoErrors) Unwrap() []error { return []error{e.first, e.second} }
