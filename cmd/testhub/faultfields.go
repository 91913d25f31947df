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
	"github.com/hubline-iot/hubline/testbroker/workload"
)

// faultKinds returns all kinds of faults by name.
var faultKinds = sync.OnceValue(func() map[string]fault.Kind {
	return byName(slices.Concat(fault.Kinds(), fault.CertificateKinds(), fault.ProvisioningKinds(),
		fault.UpdateKinds(), fault.BrokerKinds(), fault.GatewayKinds(), fault.MQTTv5Kinds()))
})

// byName returns values by their names.
func byName[T fmt.Stringer](all []T) map[string]T {
	m := make(map[string]T)
	for _, v := range all {
		m[v.String()] = v
	}
	return m
}

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

// A faultField is an API field of [fault.Fault].
type faultField struct {
	of    string       // the name of the field in Go, as Kind.Fields has it; empty = every kind has it
	only  []fault.Kind // unless nil: for these kinds
	not   []fault.Kind // except these
	input func(f *fault.Fault) field
}

func (f faultField) isFor(k fault.Kind) bool {
	return (f.of == "" || slices.Contains(k.Fields(), f.of)) && (f.only == nil || slices.Contains(f.only, k)) &&
		!slices.Contains(f.not, k)
}

const maxDelay = 24 * time.Hour

var (
	sasl  = []fault.Kind{fault.RefuseSASL}
	quota = []fault.Kind{fault.Quota}
)

// faultFields are all fields except the kind and the device.
var faultFields = []faultField{
	{"", nil, nil, func(f *fault.Fault) field { return whole("after", 0, 1<<30, &f.After) }},
	{"Times", nil, nil, func(f *fault.Fault) field { return countOr("times", "for until it is removed", &f.Times) }},
	{"Probability", nil, nil, func(f *fault.Fault) field {
		return number("probability", "a number above 0, up to 1",
			&f.Probability, func(p float64) bool { return p > 0 && p <= 1 })
	}},
	{"", nil, nil, func(f *fault.Fault) field { return span("for", 0, maxDelay, &f.For) }},
	{"Code", nil, sasl, func(f *fault.Fault) field { return whole("code", 1, 255, &f.Code) }},
	{"Code", sasl, nil, func(f *fault.Fault) field { return whole("code", 1, 4, &f.Code) }},
	{"Condition", nil, nil, func(f *fault.Fault) field { return text("condition", &f.Condition) }},
	{"ServerReference", nil, nil, func(f *fault.Fault) field { return text("serverReference", &f.ServerReference) }},
	{"Description", nil, nil, func(f *fault.Fault) field { return text("description", &f.Description) }},
	{"Status", nil, nil, func(f *fault.Fault) field { return whole("status", 400, 599, &f.Status) }},
	{"Statuses", nil, nil, func(f *fault.Fault) field { return statuses("statuses", &f.Statuses) }},
	{"ErrorCode", nil, nil, func(f *fault.Fault) field { return whole("errorCode", 400_000, 599_999, &f.ErrorCode) }},
	{"RetryAfter", nil, nil, func(f *fault.Fault) field { return span("retryAfter", 0, maxDelay, &f.RetryAfter) }},
	{"RetryAfterDate", nil, nil, func(f *fault.Fault) field { return flagField("retryAfterDate", &f.RetryAfterDate) }},
	{"Route", nil, nil, func(f *fault.Fault) field { return choice("route", routeKinds, &f.Route) }},
	{"Blob", nil, nil, func(f *fault.Fault) field { return choice("blob", blobOperations, &f.Blob) }},
	{"Skew", nil, nil, func(f *fault.Fault) field { return span("skew", -100*365*maxDelay, 100*365*maxDelay, &f.Skew) }},
	{"Operation", nil, nil, func(f *fault.Fault) field { return choice("operation", twinOperations, &f.Operation) }},
	{"Method", nil, nil, func(f *fault.Fault) field { return text("method", &f.Method) }},
	{"Message", nil, nil, func(f *fault.Fault) field { return text("message", &f.Message) }},
	{"Link", nil, nil, func(f *fault.Fault) field { return choice("link", linkKinds, &f.Link) }},
	{"Unclosed", nil, nil, func(f *fault.Fault) field { return flagField("unclosed", &f.Unclosed) }},
	{"UndeliverableHere", nil, nil, func(f *fault.Fault) field {
		return flagField("undeliverableHere", &f.UndeliverableHere)
	}},
	{"Delay", nil, nil, func(f *fault.Fault) field { return span("delay", 0, maxDelay, &f.Delay) }},
	{"Rate", nil, nil, func(f *fault.Fault) field {
		return number("rate", "a number above 0, up to 1000000000", &f.Rate,
			func(r float64) bool { return r > 0 && r <= 1e9 })
	}},
	{"Limit", nil, quota, func(f *fault.Fault) field { return whole("limit", 1, 1<<30, &f.Limit) }},
	{"Limit", quota, nil, func(f *fault.Fault) field { return countOr("limit", "for none at all", &f.Limit) }},
	{"AcceptConnects", nil, nil, func(f *fault.Fault) field { return flagField("acceptConnects", &f.AcceptConnects) }},
	{"Text", nil, nil, func(f *fault.Fault) field { return text("text", &f.Text) }},
	{"Bytes", nil, nil, func(f *fault.Fault) field { return rawBytes("bytesBase64", &f.Bytes) }},
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

// readFault parses a fault.
func readFault(data []byte) (f fault.Fault, problem *refusal) {
	problem = readKind(data, "DropConnect", faultKinds(), &f.Kind, func() []field { return fieldsOf(f.Kind, &f) })
	if problem == nil {
		problem = meaningless(f.Check())
	}
	return f, problem
}

// readKind parses a fault of one of these kinds. It refuses fields that the kind does not use,
// because the user would wait for their effect in vain.
func readKind[K fmt.Stringer](data []byte, example string, kinds map[string]K, into *K,
	fieldsOf func() []field) *refusal {
	members, problem := membersOf(data, "")
	if problem != nil {
		problem.Field = cmp.Or(problem.Field, "body")
		problem.Fix = cmp.Or(problem.Fix, `give one such as {"kind":"`+example+`"}`)
		return problem
	}
	kind := choice("kind", kinds, into)
	if members["kind"] == nil {
		return bad("kind", "is missing", "GET /faults/kinds lists them")
	}
	if problem := kind.take(members["kind"], "kind"); problem != nil {
		problem.Fix = "GET /faults/kinds lists them" + suggestion(slices.Sorted(maps.Keys(kinds)), members["kind"])
		return problem
	}
	fields := fieldsOf()
	for name := range members {
		if name != "kind" && !slices.ContainsFunc(fields,
			func(f field) bool { return f.name == name }) && isFaultField(name) {
			return bad(name, "means nothing to "+(*into).String(), "leave it out; there are: "+names(fields))
		}
	}
	return readMembers(members, "", append(fields, kind))
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
func suggestion(kinds []string, raw json.RawMessage) string {
	for _, name := range kinds {
		if strings.EqualFold(`"`+name+`"`, string(raw)) {
			return "; do you mean " + name + "?"
		}
	}
	return ""
}

func isFaultField(name string) bool {
	return slices.ContainsFunc(faultFields, func(ff faultField) bool { return ff.input(&fault.Fault{}).name == name })
}

func workloadCalls() map[string]workload.Call { return byName(workload.Calls()) }

func workloadKinds() map[string]workload.FaultKind { return byName(workload.FaultKinds()) }

// A workloadField is a field of faults of the workload API.
type workloadField struct {
	kinds []workload.FaultKind // nil: all except Absent
	input func(f *workload.Fault) field
}

// workloadFields are all fields except the kind.
var workloadFields = []workloadField{
	{workload.FaultKinds(), func(f *workload.Fault) field { return span("for", 0, maxDelay, &f.For) }},
	{nil, func(f *workload.Fault) field { return choice("call", workloadCalls(), &f.Call) }},
	{nil, func(f *workload.Fault) field { return text("module", &f.Module) }},
	{nil, func(f *workload.Fault) field { return whole("after", 0, 1<<30, &f.After) }},
	{nil, func(f *workload.Fault) field { return countOr("times", "for until it is removed", &f.Times) }},
	{nil, func(f *workload.Fault) field {
		return number("probability", "a number above 0, up to 1", &f.Probability,
			func(p float64) bool { return p > 0 && p <= 1 })
	}},
	{[]workload.FaultKind{workload.FaultAnswerStatus}, func(f *workload.Fault) field {
		return whole("status", 200, 599, &f.Status)
	}},
	{[]workload.FaultKind{workload.FaultSlow},
		func(f *workload.Fault) field { return span("delay", 0, maxDelay, &f.Delay) }},
	{[]workload.FaultKind{workload.FaultNotHTTP, workload.FaultGarbage}, func(f *workload.Fault) field {
		return rawBytes("bytesBase64", &f.Bytes)
	}},
	{[]workload.FaultKind{workload.FaultOversized}, func(f *workload.Fault) field {
		return whole("size", 1, 1<<30, &f.Size)
	}},
}

// workloadFieldsOf returns the fields of a kind of fault, except the kind.
func workloadFieldsOf(k workload.FaultKind, f *workload.Fault) (fields []field) {
	for _, wf := range workloadFields {
		if wf.kinds == nil && k != workload.FaultAbsent || slices.Contains(wf.kinds, k) {
			fields = append(fields, wf.input(f))
		}
	}
	return fields
}

// readWorkloadFault parses a fault of the workload API.
func readWorkloadFault(data []byte) (f workload.Fault, problem *refusal) {
	problem = readKind(data, "AnswerStatus", workloadKinds(), &f.Kind,
		func() []field { return workloadFieldsOf(f.Kind, &f) })
	if problem == nil {
		problem = meaningless(f.Check())
	}
	return f, problem
}
