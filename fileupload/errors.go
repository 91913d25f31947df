package fileupload

import (
	"encoding/xml"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

const proto = "http"

// protocol parameterizes the dialer and its errors.
var protocol = dialer.Protocol{Name: proto, Secure: "443", Plain: "80", HTTP: true, Kind: hubhttp.PeerKind}

// Services that answer.
const (
	hubService     = "hub"
	storageService = "storage"
)

// refusalIn returns the refusal by the hub or by storage in err, nil if there is none. Refusals by
// a proxy do not count.
func refusalIn(err error) *transport.StatusError {
	e, ok := errors.AsType[*transport.StatusError](err)
	if !ok || e.Service != hubService && e.Service != storageService {
		return nil
	}
	return e
}

// meaning is the meaning of an answer. hint, which may be empty, is advice.
type meaning struct {
	kind transport.Kind
	hint string
}

// hubTable has hub codes with a special meaning for uploads or with advice. Package hubhttp has
// the meaning of the others.
var hubTable = map[int]meaning{
	correlationInvalid: {transport.Conflict, ""},
	correlationExpired: {transport.Conflict, ""},

	400014: {transport.Unsupported, "give the hub a storage container for uploads"},
	400017: {transport.Unsupported, "check the hub's storage container for uploads"},
	400020: {transport.Unsupported, "check the hub's storage container for uploads"},
	401001: {transport.NotFound, "check the hub's name"},
	403006: {transport.Quota, "a device has 10 uploads at a time, and one of whose end the hub was not notified counts " +
		"until its URI expires"},
	403012: {transport.Forbidden, "enable the device"},
}

const (
	correlationInvalid = 400015
	correlationExpired = 400016
)

// storageTable has storage codes that are more specific than the status. Source: the pages "Common
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
	"Crc64Mismatch":                   {transport.Protocol, damaged},
	"InternalError":                   {transport.Unavailable, ""},
	"InvalidAuthenticationInfo":       {transport.Unauthorized, ""},
	"InvalidBlobOrBlock": {transport.Conflict, "another program may have left unfinished blocks under " +
		"this name, which last a week: use another name"},
	"InvalidBlobType": {transport.Conflict, "there is a blob of another type: use another name"},
	"InvalidBlockList": {transport.Conflict,
		"another upload of the same name ended meanwhile: upload again, or use another name"},
	"Md5Mismatch":                 {transport.Protocol, damaged},
	"NoAuthenticationInformation": {transport.Unauthorized, ""},
	"OperationTimedOut":           {transport.Timeout, ""},
	"ServerBusy":                  {transport.Throttled, ""},
	"SystemInUse":                 {transport.Unavailable, ""},
}

// damaged is the hint of codes with the cause transport.ErrMaybeDamaged.
const damaged = "the data was damaged on the way"

// refusal returns the *transport.Error for an unexpected answer.
func (a *answer) refusal(m meaning, e *transport.StatusError, now time.Time) *transport.Error {
	e.Status, e.Hint = a.status, m.hint
	e.Name, e.Message, e.TrackingID = shorten(e.Name), shorten(e.Message), shorten(e.TrackingID)
	after, _ := times.RetryAfterHeaders(a.header.Get, now)
	return &transport.Error{Kind: m.kind, Op: transport.OpSend, Proto: proto, RetryAfter: after, Err: e}
}

// hubRefusal converts an answer of the hub to an error.
func hubRefusal(a *answer, now time.Time) *transport.Error {
	e, v := hubhttp.ReadAnswer(a.status, a.header, a.body)
	m, ok := hubTable[e.Code]
	if !ok {
		m.kind = v.Kind
	}
	r := a.refusal(m, e, now)
	if skew, known := a.skew(now); known && r.Kind == transport.Unauthorized && (skew > badClock || skew < -badClock) {
		e.Hint = "the device's clock is off by " + skew.Round(time.Second).String() + ": set it"
	}
	return r
}

// badClock is roughly the clock error from which on a hub refuses tokens.
const badClock = 4 * time.Minute

// skew returns how far the local clock is ahead of the service's.
func (a *answer) skew(now time.Time) (time.Duration, bool) {
	at, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		return 0, false
	}
	return now.Sub(at), true
}

// storageRefusal converts an answer of storage to an error. The code is in a header, else in XML.
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
		v := statuscode.Of(a.status, statuscode.Storage)
		if v.About == statuscode.Fine { // without storage's id
			v = statuscode.Meaning{Kind: transport.Protocol, About: statuscode.Identity}
		}
		m.kind = v.Kind
		if body.Code == "" && (hubhttp.IsPage(a.header) || a.status == http.StatusCreated) {
			m.hint = "a proxy or a captive portal may have answered in place of storage"
			if v.About == statuscode.Identity {
				e.Service, m.kind = "peer", transport.Protocol
			}
		}
	}
	r := a.refusal(m, e, now)
	if m.hint == damaged {
		r.Err = dialer.DamagedError{Cause: r.Err}
	}
	return r
}

// withoutSecrets returns err without g's signature. err is the error of an attempt without an
// answer: net/http quotes unparsable parts of an answer.
func withoutSecrets(err error, g *grant) error {
	e := transport.Find(err)
	if e == nil || e.Err == nil {
		return err
	}
	scrubbed := *e
	scrubbed.Err = scrub.KnownCause(e.Err, g.secrets()...)
	return &scrubbed
}

// shorten returns the first line of a peer's text, scrubbed.
func shorten(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return scrub.Peer(text)
}

// A stepError names the step of an upload that failed.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// A twoErrors joins a failure and a later one.
type twoErrors struct {
	first     error
	separator string
	second    error
}

func (e *twoErrors) Error() string   { return e.first.Error() + e.separator + e.second.Error() }
func (e *twoErrors) Unwrap() []error { return []error{e.first, e.second} }
