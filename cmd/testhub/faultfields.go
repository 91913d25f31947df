package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	tb "github.com/hubline-iot/hubline/testbroker"
)

// faultKinds returns all kinds of faults by name.
var faultKinds = sync.OnceValue(func() map[string]tb.FaultKind {
	m := make(map[string]tb.FaultKind)
	for k := tb.FaultKind(1); k < math.MaxUint16; k++ {
		if k.Protocols() != 0 {
			m[k.String()] = k
		}
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
	routeKinds     = named(tb.RouteAny)
	linkKinds      = named(tb.LinkAny)
	twinOperations = named(tb.TwinAny)
	blobOperations = named(tb.BlobAny)
)

// Groups of kinds with a common field. Source: the documentation of the constants.
var (
	lasting  = []tb.FaultKind{tb.HalfOpen, tb.Throttle, tb.Absent, tb.Quota}
	requests = []tb.FaultKind{
		tb.AnswerStatus, tb.AnswerStatusAfter, tb.ResetBeforeRequest, tb.ResetAfterRequest, tb.NoAnswer, tb.DropDuringAnswer,
		tb.SlowAnswer,
		tb.GarbageAnswer, tb.WrongDate, tb.NoContentLength,
	}
	blobs    = []tb.FaultKind{tb.CutBlobBody, tb.SlowBlob, tb.DamageBlob, tb.ExpireUpload}
	attaches = []tb.FaultKind{tb.RefuseAttach, tb.SlowAttach, tb.NoAttach, tb.DropOnAttach, tb.WithholdCredit,
		tb.DetachWhileIdle}
	detaches   = []tb.FaultKind{tb.DetachWhileIdle, tb.DetachOnMessage, tb.DetachAfterMessage}
	conditions = append([]tb.FaultKind{tb.RefuseConnect, tb.RefuseAttach, tb.RejectMessage, tb.CloseOnMessage,
		tb.EndOnMessage}, detaches...)
	scripted = []tb.FaultKind{tb.AnswerStatus, tb.AnswerStatusAfter}
	twins    = []tb.FaultKind{
		tb.DropBeforeTwin, tb.RefuseTwin, tb.DropAfterTwin, tb.SwallowTwin, tb.SlowTwin, tb.MisnameTwin, tb.DuplicateTwin,
		tb.GarbleTwin,
	}
	methods = []tb.FaultKind{
		tb.DropBeforeMethod, tb.SwallowMethod, tb.SlowMethod, tb.DuplicateMethod, tb.GarbleMethod, tb.DropAfterMethod,
		tb.MisnameMethod, tb.RefuseMethod,
		tb.DropOnMethodAnswer, tb.SwallowMethodAnswer, tb.SlowMethodAnswer, tb.DropAfterMethodAnswer,
	}
	slow = []tb.FaultKind{
		tb.SlowConnack, tb.DelayPuback, tb.SlowSuback, tb.SlowAttach, tb.WithholdCredit, tb.DetachWhileIdle, tb.SlowToken,
		tb.SlowAnswer, tb.SlowTwin,
		tb.SlowDesired, tb.SlowMethod, tb.SlowMethodAnswer, tb.SlowBlob,
	}
	garbage = []tb.FaultKind{tb.GarbageOnConnect, tb.GarbageOnSubscribe, tb.GarbageOnPublish, tb.GarbageAnswer,
		tb.GarbleTwin, tb.GarbleMethod}
)

// A faultField is an API field of [tb.Fault].
type faultField struct {
	kinds []tb.FaultKind // the field is only for these kinds; nil = for all
	not   []tb.FaultKind // except these
	input func(f *tb.Fault) field
}

func (f faultField) isFor(k tb.FaultKind) bool {
	return (f.kinds == nil || slices.Contains(f.kinds, k)) && !slices.Contains(f.not, k)
}

const maxDelay = 24 * time.Hour

// faultFields are all fields except the kind and the device.
var faultFields = []faultField{
	{input: func(f *tb.Fault) field { return whole("after", 0, 1<<30, &f.After) }},
	{not: lasting, input: func(f *tb.Fault) field { return countOr("times", "for until it is removed", &f.Times) }},
	{not: lasting, input: func(f *tb.Fault) field {
		return number("probability", "a number above 0, up to 1",
			&f.Probability, func(p float64) bool { return p > 0 && p <= 1 })
	}},
	{input: func(f *tb.Fault) field { return span("for", 0, maxDelay, &f.For) }},
	{kinds: []tb.FaultKind{tb.RefuseConnect, tb.RefuseSubscribe},
		input: func(f *tb.Fault) field { return whole("code", 1, 255, &f.Code) }},
	{kinds: []tb.FaultKind{tb.RefuseSASL}, input: func(f *tb.Fault) field { return whole("code", 1, 4, &f.Code) }},
	{kinds: conditions, input: func(f *tb.Fault) field { return text("condition", &f.Condition) }},
	{kinds: slices.Concat(conditions, scripted, []tb.FaultKind{tb.RefuseTwin, tb.RefuseMethod}),
		input: func(f *tb.Fault) field {
			return text("description", &f.Description)
		}},
	{kinds: []tb.FaultKind{tb.RefuseConnect, tb.RefuseToken, tb.RefuseTwin, tb.RefuseMethod},
		input: func(f *tb.Fault) field {
			return whole("status", 400, 599, &f.Status)
		}},
	{kinds: scripted, input: func(f *tb.Fault) field { return statuses("statuses", &f.Statuses) }},
	{kinds: slices.Concat(scripted, []tb.FaultKind{tb.RefuseConnect, tb.RefuseTwin, tb.RefuseMethod}),
		input: func(f *tb.Fault) field {
			return whole("errorCode", 400_000, 599_999, &f.ErrorCode)
		}},
	{kinds: slices.Concat(scripted, []tb.FaultKind{tb.RefuseConnect, tb.RefuseTwin}), input: func(f *tb.Fault) field {
		return span("retryAfter", 0, maxDelay, &f.RetryAfter)
	}},
	{kinds: slices.Concat(scripted, []tb.FaultKind{tb.RefuseConnect, tb.Throttle}), input: func(f *tb.Fault) field {
		return flagField("retryAfterDate", &f.RetryAfterDate)
	}},
	{kinds: slices.Concat(requests, []tb.FaultKind{tb.Throttle}),
		input: func(f *tb.Fault) field { return choice("route", routeKinds, &f.Route) }},
	{kinds: slices.Concat(requests, blobs),
		input: func(f *tb.Fault) field { return choice("blob", blobOperations, &f.Blob) }},
	{kinds: []tb.FaultKind{tb.WrongDate},
		input: func(f *tb.Fault) field { return span("skew", -100*365*maxDelay, 100*365*maxDelay, &f.Skew) }},
	{kinds: twins, input: func(f *tb.Fault) field { return choice("operation", twinOperations, &f.Operation) }},
	{kinds: methods, input: func(f *tb.Fault) field { return text("method", &f.Method) }},
	{kinds: attaches, input: func(f *tb.Fault) field { return choice("link", linkKinds, &f.Link) }},
	{kinds: detaches, input: func(f *tb.Fault) field { return flagField("unclosed", &f.Unclosed) }},
	{kinds: []tb.FaultKind{tb.ModifyMessage},
		input: func(f *tb.Fault) field { return flagField("undeliverableHere", &f.UndeliverableHere) }},
	{kinds: slow, input: func(f *tb.Fault) field { return span("delay", 0, maxDelay, &f.Delay) }},
	{kinds: []tb.FaultKind{tb.Throttle}, input: func(f *tb.Fault) field {
		return number("rate", "a number above 0, up to 1000000", &f.Rate, func(r float64) bool { return r > 0 && r <= 1e6 })
	}},
	{kinds: []tb.FaultKind{tb.Throttle}, input: func(f *tb.Fault) field { return whole("limit", 1, 1<<30, &f.Limit) }},
	{kinds: []tb.FaultKind{tb.Quota},
		input: func(f *tb.Fault) field { return countOr("limit", "for none at all", &f.Limit) }},
	{kinds: []tb.FaultKind{tb.Quota},
		input: func(f *tb.Fault) field { return flagField("acceptConnects", &f.AcceptConnects) }},
	{kinds: garbage, input: func(f *tb.Fault) field { return binary("bytesBase64", &f.Bytes) }},
}

// countOr is a field for a number of times, or -1 with another meaning. It refuses 0, which the hub
// would take as its default, contrary to the user's intention.
func countOr(name, otherwise string, into *int) field {
	return value(name, "a whole number from 1 on, or -1 "+otherwise,
		into, func(n int) bool { return n == -1 || n >= 1 && n <= 1<<30 })
}

// statuses is a field for a list of status codes; 0 lets a request pass.
func statuses(name string, into *[]int) field {
	return list(name, func(path string, raw json.RawMessage) *refusal {
		var n int
		problem := value(path, "a status from 200 to 599, or 0 for a request that passes",
			&n, func(n int) bool { return n == 0 || n >= 200 && n <= 599 }).take(raw, path)
		*into = append(*into, n)
		return problem
	})
}

// fieldsOf returns the fields of a kind of fault, except the kind.
func fieldsOf(k tb.FaultKind, f *tb.Fault) []field {
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
func readFault(data []byte) (tb.Fault, *refusal) {
	var f tb.Fault
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
	return f, readMembers(members, "", append(fields, kind))
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
	return slices.ContainsFunc(faultFields, func(ff faultField) bool { return ff.input(&tb.Fault{}).name == name })
}
