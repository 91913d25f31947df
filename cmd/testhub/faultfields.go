package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// faultKinds returns all kinds of faults by name.
var faultKinds = sync.OnceValue(func() map[string]fault.Kind {
	m := make(map[string]fault.Kind)
	for _, k := range slices.Concat(fault.Kinds(), fault.CertificateKinds(), fault.ProvisioningKinds(),
		fault.BrokerKinds(), fault.GatewayKinds()) {
		m[k.String()] = k
	}
	return m
})

// named maps the names of an enumeration's values, in lower case and with hyphens, to the values.
// String returns a text with a parenthesis for unknown values.
func named[T interface {
	~uint8
	fmt.Stringer
}](first T) map[string]T {
	m := make(map[string]T)
	for v := first; !strings.Contains(v.String(), "("); v++ {
		m[strings.ReplaceAll(strings.ToLower(v.String()), " ", "-")] = v
	}
	return m
}

var (
	routeKinds     = named(fault.RouteAny)
	linkKinds      = named(fault.LinkAny)
	twinOperations = named(hubdata.TwinAny)
	blobOperations = named(fault.BlobAny)
)

// Groups of kinds with a common field. Source: the documentation of the constants.
var (
	lasting  = slices.DeleteFunc(fault.Kinds(), func(k fault.Kind) bool { return !k.Lasts() })
	requests = []fault.Kind{
		fault.AnswerStatus, fault.AnswerStatusAfter, fault.ResetBeforeRequest, fault.ResetAfterRequest, fault.SwallowAnswer,
		fault.DropDuringAnswer,
		fault.SlowAnswer,
		fault.GarbageAnswer, fault.WrongDate, fault.NoContentLength,
	}
	blobs    = []fault.Kind{fault.CutBlobBody, fault.SlowBlob, fault.DamageBlob, fault.ExpireUpload}
	attaches = []fault.Kind{fault.RefuseAttach, fault.SlowAttach, fault.SwallowAttach, fault.DropOnAttach,
		fault.WithholdCredit,
		fault.DetachWhileIdle}
	linked = append([]fault.Kind{fault.RejectMessage, fault.ReleaseMessage, fault.ModifyMessage, fault.CloseOnMessage,
		fault.EndOnMessage, fault.DetachOnMessage, fault.DetachAfterMessage}, attaches...)
	detaches   = []fault.Kind{fault.DetachWhileIdle, fault.DetachOnMessage, fault.DetachAfterMessage}
	conditions = append([]fault.Kind{fault.RefuseConnect, fault.RefuseAttach, fault.RejectMessage, fault.CloseOnMessage,
		fault.EndOnMessage}, detaches...)
	scripted = []fault.Kind{fault.AnswerStatus, fault.AnswerStatusAfter}
	twins    = []fault.Kind{
		fault.DropBeforeTwin, fault.RefuseTwin, fault.DropAfterTwin, fault.SwallowTwin, fault.SlowTwin, fault.MisnameTwin,
		fault.DuplicateTwin,
		fault.GarbleTwin,
	}
	methods = []fault.Kind{
		fault.DropBeforeMethod, fault.SwallowMethod, fault.SlowMethod, fault.DuplicateMethod, fault.GarbleMethod,
		fault.DropAfterMethod,
		fault.MisnameMethod, fault.RefuseMethod,
		fault.DropOnMethodAnswer, fault.SwallowMethodAnswer, fault.SlowMethodAnswer, fault.DropAfterMethodAnswer,
	}
	slow = []fault.Kind{
		fault.SlowConnack, fault.SlowPuback, fault.SlowSuback, fault.SlowAttach, fault.WithholdCredit, fault.DetachWhileIdle,
		fault.SlowToken,
		fault.SlowAnswer, fault.SlowTwin,
		fault.SlowDesired, fault.SlowMethod, fault.SlowMethodAnswer, fault.SlowBlob, fault.SlowCertificate,
		fault.SlowProvisioning, fault.SlowAuth, fault.DisconnectWhileIdle, fault.SlowRoute,
	}
	reasons = []fault.Kind{fault.DisconnectWhileIdle, fault.DisconnectOnPublish, fault.RefusePublish, fault.RefuseAuth}
	garbage = []fault.Kind{fault.GarbageOnConnect, fault.GarbageOnSubscribe, fault.GarbageOnPublish, fault.GarbageAnswer,
		fault.GarbleTwin, fault.GarbleMethod, fault.GarbleCertificate, fault.WrongCertificate, fault.GarbleProvisioning,
		fault.WrongChain, fault.WrongChallenge, fault.WrongAuthenticationKey}
	refusing = []fault.Kind{fault.RefuseTwin, fault.RefuseCertificate, fault.RefuseProvisioning}
	worded   = []fault.Kind{fault.WrongRetryAfter, fault.WrongStatus, fault.WrongDeviceID, fault.WrongHub,
		fault.WrongProfile}
)

// A faultField is an API field of [fault.Fault].
type faultField struct {
	kinds []fault.Kind // the field is only for these kinds; nil = for all
	not   []fault.Kind // except these
	input func(f *fault.Fault) field
}

func (f faultField) isFor(k fault.Kind) bool {
	return (f.kinds == nil || slices.Contains(f.kinds, k)) && !slices.Contains(f.not, k)
}

const maxDelay = 24 * time.Hour

// faultFields are all fields except the kind and the device.
var faultFields = []faultField{
	{input: func(f *fault.Fault) field { return whole("after", 0, 1<<30, &f.After) }},
	{not: lasting, input: func(f *fault.Fault) field { return countOr("times", "for until it is removed", &f.Times) }},
	{not: lasting, input: func(f *fault.Fault) field {
		return number("probability", "a number above 0, up to 1",
			&f.Probability, func(p float64) bool { return p > 0 && p <= 1 })
	}},
	{input: func(f *fault.Fault) field { return span("for", 0, maxDelay, &f.For) }},
	{kinds: append([]fault.Kind{fault.RefuseConnect, fault.RefuseSubscribe}, reasons...),
		input: func(f *fault.Fault) field { return whole("code", 1, 255, &f.Code) }},
	{kinds: []fault.Kind{fault.RefuseSASL}, input: func(f *fault.Fault) field { return whole("code", 1, 4, &f.Code) }},
	{kinds: conditions, input: func(f *fault.Fault) field { return text("condition", &f.Condition) }},
	{kinds: append([]fault.Kind{fault.RefuseConnect}, reasons...),
		not:   []fault.Kind{fault.RefusePublish},
		input: func(f *fault.Fault) field { return text("serverReference", &f.ServerReference) }},
	{kinds: slices.Concat(conditions, scripted, refusing, reasons, []fault.Kind{fault.RefuseMethod, fault.WrongStatus,
		fault.RefuseSubscribe}),
		input: func(f *fault.Fault) field {
			return text("description", &f.Description)
		}},
	{kinds: slices.Concat(refusing, []fault.Kind{fault.RefuseConnect, fault.RefuseToken, fault.RefuseMethod}),
		input: func(f *fault.Fault) field {
			return whole("status", 400, 599, &f.Status)
		}},
	{kinds: scripted, input: func(f *fault.Fault) field { return statuses("statuses", &f.Statuses) }},
	{kinds: slices.Concat(scripted, refusing, []fault.Kind{fault.RefuseConnect, fault.RefuseMethod, fault.WrongStatus}),
		input: func(f *fault.Fault) field {
			return whole("errorCode", 400_000, 599_999, &f.ErrorCode)
		}},
	{kinds: slices.Concat(scripted, refusing, []fault.Kind{fault.RefuseConnect}),
		input: func(f *fault.Fault) field {
			return span("retryAfter", 0, maxDelay, &f.RetryAfter)
		}},
	{kinds: slices.Concat(scripted, []fault.Kind{fault.RefuseConnect, fault.Throttle}), input: func(f *fault.Fault) field {
		return flagField("retryAfterDate", &f.RetryAfterDate)
	}},
	{kinds: slices.Concat(requests, blobs, fault.ProvisioningKinds(), []fault.Kind{fault.Throttle}),
		not:   []fault.Kind{fault.ExpireUpload},
		input: func(f *fault.Fault) field { return choice("route", routeKinds, &f.Route) }},
	{kinds: slices.Concat(requests, blobs),
		input: func(f *fault.Fault) field { return choice("blob", blobOperations, &f.Blob) }},
	{kinds: []fault.Kind{fault.WrongDate},
		input: func(f *fault.Fault) field { return span("skew", -100*365*maxDelay, 100*365*maxDelay, &f.Skew) }},
	{kinds: twins, input: func(f *fault.Fault) field { return choice("operation", twinOperations, &f.Operation) }},
	{kinds: methods, input: func(f *fault.Fault) field { return text("method", &f.Method) }},
	{kinds: linked, input: func(f *fault.Fault) field { return choice("link", linkKinds, &f.Link) }},
	{kinds: detaches, input: func(f *fault.Fault) field { return flagField("unclosed", &f.Unclosed) }},
	{kinds: []fault.Kind{fault.ModifyMessage},
		input: func(f *fault.Fault) field { return flagField("undeliverableHere", &f.UndeliverableHere) }},
	{kinds: slow, input: func(f *fault.Fault) field { return span("delay", 0, maxDelay, &f.Delay) }},
	{kinds: []fault.Kind{fault.Throttle}, input: func(f *fault.Fault) field {
		return number("rate", "a number above 0, up to 1000000", &f.Rate, func(r float64) bool { return r > 0 && r <= 1e6 })
	}},
	{kinds: []fault.Kind{fault.Throttle}, input: func(f *fault.Fault) field { return whole("limit", 1, 1<<30, &f.Limit) }},
	{kinds: []fault.Kind{fault.Quota},
		input: func(f *fault.Fault) field { return countOr("limit", "for none at all", &f.Limit) }},
	{kinds: []fault.Kind{fault.Quota},
		input: func(f *fault.Fault) field { return flagField("acceptConnects", &f.AcceptConnects) }},
	{kinds: worded, input: func(f *fault.Fault) field { return text("text", &f.Text) }},
	{kinds: garbage, input: func(f *fault.Fault) field { return binary("bytesBase64", &f.Bytes) }},
}

// countOr is a field for a number of times, or -1 with another meaning. It refuses 0, which the hub
// would take as its default, contrary to the user's intention.
func countOr(name, otherwise string, into *int) field {
	return value(name, "a whole number from 1 on, or -1 "+otherwise,
		into, func(n int) bool { return n == -1 || n >= 1 && n <= 1<<30 }).as("whole")
}

// statuses is a field for a list of status codes; 0 lets a request pass.
func statuses(name string, into *[]int) field {
	f := list(name, func(path string, raw json.RawMessage) *refusal {
		var n int
		problem := value(path, "a status from 200 to 599, or 0 for a request that passes",
			&n, func(n int) bool { return n == 0 || n >= 200 && n <= 599 }).take(raw, path)
		*into = append(*into, n)
		return problem
	})
	f.form.Want = "a list such as [503,0,429]; 0 for a request that passes"
	return f
}

// fieldsOf returns the fields of a kind of fault, except the kind.
func fieldsOf(k fault.Kind, f *fault.Fault) []field {
	fields := []field{text("device", &f.Device)}
	for _, ff := range faultFields {
		if ff.isFor(k) {
			fields = append(fields, ff.input(f))
		}
	}
	return fields
}

// readFault parses a fault. It refuses fields that the kind does not use, because the user would
// wait for their effect in vain.
func readFault(data []byte) (fault.Fault, *refusal) {
	var f fault.Fault
	members, problem := membersOf(data, "")
	if problem != nil {
		problem.Field = cmp.Or(problem.Field, "body")
		problem.Fix = cmp.Or(problem.Fix, `give one such as {"kind":"DropConnect"}`)
		return f, problem
	}
	kind := choice("kind", faultKinds(), &f.Kind)
	if members["kind"] == nil {
		return f, bad("kind", "is missing", "GET /faults/kinds lists them")
	}
	if problem := kind.take(members["kind"], "kind"); problem != nil {
		problem.Fix = "GET /faults/kinds lists them" + suggestion(members["kind"])
		return f, problem
	}
	fields := fieldsOf(f.Kind, &f)
	for name := range members {
		if name != "kind" && !slices.ContainsFunc(fields,
			func(f field) bool { return f.name == name }) && isFaultField(name) {
			return f, bad(name, "means nothing to "+f.Kind.String(), "leave it out; there are: "+names(fields))
		}
	}
	if problem := readMembers(members, "", append(fields, kind)); problem != nil {
		return f, problem
	}
	return f, meaningless(f.Check())
}

// meaningless returns the refusal of a fault that cannot mean what it says.
func meaningless(err error) *refusal {
	var wrong *fault.Error
	if !errors.As(err, &wrong) {
		return nil
	}
	first, rest := wrong.Field[:1], wrong.Field[1:]
	return bad(strings.ToLower(first)+rest, wrong.Problem, wrong.Fix)
}

// suggestion names the probable kind when only the letter case is wrong, which is a frequent
// mistake.
func suggestion(raw json.RawMessage) string {
	for _, name := range slices.Sorted(maps.Keys(faultKinds())) {
		if strings.EqualFold(`"`+name+`"`, string(raw)) {
			return "; do you mean " + name + "?"
		}
	}
	return ""
}

func isFaultField(name string) bool {
	return slices.ContainsFunc(faultFields, func(ff faultField) bool { return ff.input(&fault.Fault{}).name == name })
}
