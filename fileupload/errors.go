package fileupload

import (
	"encoding/xml"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/answers"
	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/hubstatus"
	"github.com/hubline-iot/hubline/internal/retryafter"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

const proto = "http"

// protocol is what the connections below are made for.
var protocol = dialer.Protocol{Name: proto, Secure: "443", Plain: "80", HTTP: true, Kind: protocolKind}

// StatusError is an answer of the hub or of storage that refused a request: the cause of a
// *transport.Error, reachable with errors.As.
type StatusError struct {
	// Service is "hub" or "storage".
	Service string
	// Status is HTTP's.
	Status int
	// Code is the service's own: a hub's number, such as "403006" (its name where that is no known
	// one), or storage's word, such as "AuthenticationFailed". Empty when it gave none.
	Code string
	// Message is the first line of the service's text, at most 200 bytes of it, without anything
	// secret.
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

// hubTable has the codes of a hub that mean more to who uploads than to others, or that something
// helps against. What the others mean is in package hubstatus.
var hubTable = map[string]meaning{
	correlationInvalid: {transport.Conflict, ""},
	correlationExpired: {transport.Conflict, ""},

	"400014": {transport.Unsupported, "; give the hub a storage container for uploads"},
	"400017": {transport.Unsupported, "; check the hub's storage container for uploads"},
	"400020": {transport.Unsupported, "; check the hub's storage container for uploads"},
	"401001": {transport.NotFound, "; check the hub's name"},
	"403006": {transport.Quota, "; a device has 10 uploads at a time, and one whose end the hub was not told counts " +
		"until its URI expires"},
	"403012": {transport.Forbidden, "; enable the device"},
}

const (
	correlationInvalid = "400015"
	correlationExpired = "400016"
)

// storageTable has the codes of storage whose status does not say it all. Source: the pages "Common
// REST API error codes" and "Blob service error codes" of the storage services' REST reference.
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
	"InvalidBlobOrBlock": {transport.Conflict, "; another program may have left unfinished blocks under " +
		"this name, which last a week: use another name"},
	"InvalidBlobType": {transport.Conflict, "; there is a blob of another type: use another name"},
	"InvalidBlockList": {transport.Conflict,
		"; another upload of the same name ended meanwhile: upload again, or use another name"},
	"Md5Mismatch":                 {transport.Network, "; the data was damaged on the way"},
	"NoAuthenticationInformation": {transport.Unauthorized, ""},
	"OperationTimedOut":           {transport.Timeout, ""},
	"ServerBusy":                  {transport.Throttled, ""},
	"SystemInUse":                 {transport.Unavailable, ""},
}

// refusedKind returns the Kind of an answer that is not the expected one.
func refusedKind(kind transport.Kind, about statuscode.About) transport.Kind {
	if about == statuscode.Fine {
		return transport.Protocol // a success that was not asked for
	}
	return kind
}

// refusal is the *transport.Error for an answer that is not the one hoped for: what the table says
// of its code, else of the Kind given.
func (a *answer) refusal(table map[string]meaning, kind transport.Kind, e *StatusError,
	now time.Time) *transport.Error {
	e.Status = a.status
	e.Code, e.Message, e.RequestID = shorten(e.Code), shorten(e.Message), shorten(e.RequestID)
	if m, ok := table[e.Code]; ok {
		kind, e.hint = m.kind, m.hint
	}
	after, _ := retryafter.Headers(a.header.Get, now)
	return &transport.Error{Kind: kind, Op: transport.OpSend, Proto: proto, RetryAfter: after, Err: e}
}

// hubRefusal reads what a hub said.
func hubRefusal(a *answer, now time.Time) *transport.Error {
	said := hubstatus.Read(a.status, a.header, a.body)
	e := &StatusError{Service: "hub", Code: said.Name, Message: said.Message, RequestID: said.TrackingID}
	if said.Code != 0 {
		e.Code = strconv.Itoa(said.Code)
	}
	v := said.Verdict()
	r := a.refusal(hubTable, refusedKind(v.Kind, v.About), e, now)
	if skew, known := a.skew(now); known && r.Kind == transport.Unauthorized && (skew > badClock || skew < -badClock) {
		e.hint += "; the device's clock is off by " + skew.Round(time.Second).String() + ": set it"
	}
	return r
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
func storageRefusal(a *answer, g *grant, now time.Time) *transport.Error {
	var body struct{ Code, Message string }
	if err := xml.Unmarshal(a.body, &body); err != nil {
		body.Message = ""
	}
	if code := a.header.Get("x-ms-error-code"); code != "" {
		body.Code = code
	}
	secrets := g.secrets()
	m := statuscode.Of(a.status, statuscode.Storage)
	return a.refusal(storageTable, refusedKind(m.Kind, m.About), &StatusError{
		Service: "storage", Code: scrub.Known(body.Code, secrets...), Message: scrub.Known(body.Message, secrets...),
		RequestID: scrub.Known(a.header.Get("x-ms-request-id"), secrets...),
	}, now)
}

// withoutSecrets is err, of a try without an answer, without g's signature: package net/http
// repeats what it does not understand of an answer.
func withoutSecrets(err error, g *grant) error {
	e := transport.Find(err)
	if e == nil || e.Err == nil {
		return err
	}
	fit := *e
	fit.Err = scrub.KnownCause(e.Err, g.secrets()...)
	return &fit
}

// shorten is what is kept of a peer's text: the first line, fit to be shown.
func shorten(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return scrub.Peer(text)
}

// protocolKind is for dialer.Protocol: what it means that no HTTP came back.
func protocolKind(err error) (kind transport.Kind, hint string, ok bool) {
	if errors.Is(err, answers.ErrUnasked) || strings.Contains(err.Error(), "malformed HTTP") {
		// package net/http has no type for it
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
