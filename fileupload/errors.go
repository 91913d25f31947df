package fileupload

import (
	"encoding/xml"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/httpguard"
	"github.com/hubline-iot/hubline/internal/hubstatus"
	"github.com/hubline-iot/hubline/internal/retryafter"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

const proto = "http"

// protocol is what the connections below are made for.
var protocol = dialer.Protocol{Name: proto, Secure: "443", Plain: "80", HTTP: true, Kind: protocolKind}

// The services that answer.
const (
	hubService     = "hub"
	storageService = "storage"
)

// refusalIn returns the refusal of the hub or of storage in err, nil if there is none. A proxy may
// have refused as well.
func refusalIn(err error) *transport.StatusError {
	e, ok := errors.AsType[*transport.StatusError](err)
	if !ok || e.Service != hubService && e.Service != storageService {
		return nil
	}
	return e
}

// meaning is what an answer means. The hint, which may be empty, says what helps.
type meaning struct {
	kind transport.Kind
	hint string
}

// hubTable has the codes of a hub that mean more to who uploads than to others, or that something
// helps against. What the others mean is in package hubstatus.
var hubTable = map[int]meaning{
	correlationInvalid: {transport.Conflict, ""},
	correlationExpired: {transport.Conflict, ""},

	400014: {transport.Unsupported, "give the hub a storage container for uploads"},
	400017: {transport.Unsupported, "check the hub's storage container for uploads"},
	400020: {transport.Unsupported, "check the hub's storage container for uploads"},
	401001: {transport.NotFound, "check the hub's name"},
	403006: {transport.Quota, "a device has 10 uploads at a time, and one whose end the hub was not told counts " +
		"until its URI expires"},
	403012: {transport.Forbidden, "enable the device"},
}

const (
	correlationInvalid = 400015
	correlationExpired = 400016
)

// storageTable has the codes of storage whose status does not say it all. Source: the pages "Common
// REST API error codes" and "Blob service error codes" of the storage services' REST reference.
var storageTable = map[string]meaning{
	"AccountBeingCreated":             {transport.Unavailable, ""},
	"AccountIsDisabled":               {transport.Forbidden, "enable the storage account"},
	"AuthenticationFailed":            {transport.Unauthorized, ""},
	"AuthorizationFailure":            {transport.Forbidden, "check the storage account's firewall"},
	"AuthorizationPermissionMismatch": {transport.Forbidden, ""},
	"AuthorizationProtocolMismatch":   {transport.Forbidden, "use TLS"},
	"AuthorizationSourceIPMismatch":   {transport.Forbidden, ""},
	"BlobArchived":                    {transport.Conflict, "use another name"},
	"BlobImmutableDueToPolicy":        {transport.Conflict, "use another name"},
	"BlockCountExceedsLimit":          {transport.TooLarge, "raise Options.BlockSize"},
	"BlockListTooLong":                {transport.TooLarge, "raise Options.BlockSize"},
	"ContainerBeingDeleted":           {transport.NotFound, ""},
	"ContainerDisabled":               {transport.Forbidden, ""},
	"Crc64Mismatch":                   {transport.Network, "the data was damaged on the way"},
	"InternalError":                   {transport.Unavailable, ""},
	"InvalidAuthenticationInfo":       {transport.Unauthorized, ""},
	"InvalidBlobOrBlock": {transport.Conflict, "another program may have left unfinished blocks under " +
		"this name, which last a week: use another name"},
	"InvalidBlobType": {transport.Conflict, "there is a blob of another type: use another name"},
	"InvalidBlockList": {transport.Conflict,
		"another upload of the same name ended meanwhile: upload again, or use another name"},
	"Md5Mismatch":                 {transport.Network, "the data was damaged on the way"},
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

// refusal returns the *transport.Error for an answer that is not the expected one.
func (a *answer) refusal(m meaning, e *transport.StatusError, now time.Time) *transport.Error {
	e.Status, e.Hint = a.status, m.hint
	e.Name, e.Message, e.TrackingID = shorten(e.Name), shorten(e.Message), shorten(e.TrackingID)
	after, _ := retryafter.Headers(a.header.Get, now)
	return &transport.Error{Kind: m.kind, Op: transport.OpSend, Proto: proto, RetryAfter: after, Err: e}
}

// hubRefusal reads what a hub said.
func hubRefusal(a *answer, now time.Time) *transport.Error {
	e := hubstatus.Read(a.status, a.header, a.body)
	m, ok := hubTable[e.Code]
	if !ok {
		v := hubstatus.Of(e)
		m.kind = refusedKind(v.Kind, v.About)
	}
	r := a.refusal(m, e, now)
	if skew, known := a.skew(now); known && r.Kind == transport.Unauthorized && (skew > badClock || skew < -badClock) {
		e.Hint = "the device's clock is off by " + skew.Round(time.Second).String() + ": set it"
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
	e := &transport.StatusError{Service: storageService, Name: scrub.Known(body.Code, secrets...),
		Message:    scrub.Known(body.Message, secrets...),
		TrackingID: scrub.Known(a.header.Get("x-ms-request-id"), secrets...)}
	m, ok := storageTable[shorten(e.Name)]
	if !ok {
		of := statuscode.Of(a.status, statuscode.Storage)
		m.kind = refusedKind(of.Kind, of.About)
	}
	return a.refusal(m, e, now)
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
	if errors.Is(err, httpguard.ErrUnasked) || strings.Contains(err.Error(), "malformed HTTP") {
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
