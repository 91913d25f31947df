package main

import (
	"slices"

	"github.com/hubline-iot/hubline/testbroker/workload"
)

func workloadCalls() map[string]workload.Call {
	all := make(map[string]workload.Call)
	for _, call := range workload.Calls() {
		all[call.String()] = call
	}
	return all
}

func workloadKinds() map[string]workload.FaultKind {
	all := make(map[string]workload.FaultKind)
	for _, k := range workload.FaultKinds() {
		all[k.String()] = k
	}
	return all
}

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
	{[]workload.FaultKind{workload.AnswerStatus}, func(f *workload.Fault) field {
		return whole("status", 200, 599, &f.Status)
	}},
	{[]workload.FaultKind{workload.Slow}, func(f *workload.Fault) field { return span("delay", 0, maxDelay, &f.Delay) }},
	{[]workload.FaultKind{workload.NotHTTP, workload.Garbage}, func(f *workload.Fault) field {
		return binary("bytesBase64", &f.Bytes)
	}},
	{[]workload.FaultKind{workload.Oversized}, func(f *workload.Fault) field {
		return whole("size", 1, 1<<30, &f.Size)
	}},
}

// workloadFieldsOf returns the fields of a kind of fault, except the kind.
func workloadFieldsOf(k workload.FaultKind, f *workload.Fault) (fields []field) {
	for _, wf := range workloadFields {
		if wf.kinds == nil && k != workload.Absent || slices.Contains(wf.kinds, k) {
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
