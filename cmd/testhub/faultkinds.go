package main

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/workload"
)

// A faultKind describes a kind of fault to a program or a page that offers it.
type faultKind struct {
	Kind      string   `json:"kind"`
	Does      string   `json:"does"`
	Protocols []string `json:"protocols,omitempty"`
	Fields    []string `json:"fields"`
	// Inputs has the form of each field, in their order.
	Inputs []form `json:"inputs"`
	// Request declares the fault.
	Request string `json:"request"`
}

// kindTexts has the comment of each kind in the source, a line each after its name.
//
//go:embed faultkinds.txt
var kindTexts string

// kindDoes returns the description of each kind by its name; those of the workload API have the
// prefix "workload.".
var kindDoes = sync.OnceValue(func() map[string]string {
	all := make(map[string]string)
	for l := range strings.Lines(kindTexts) {
		name, does, _ := strings.Cut(strings.TrimSpace(l), " ")
		all[name] = does
	}
	return all
})

func (c *control) kinds(r *call) (any, *refusal) {
	return map[string]any{"kinds": hubKinds(), "workload": daemonKinds()}, r.query()
}

// hubKinds describes the faults of a hub and of a provisioning service.
func hubKinds() []faultKind {
	all := []faultKind{}
	table := faultKinds()
	for _, name := range slices.Sorted(maps.Keys(table)) {
		k := faultKind{Kind: name, Does: kindDoes()[name], Request: "POST /faults"}
		if slices.Contains(dpsKinds(), table[name]) {
			k.Request = "POST /dps/faults"
		}
		for _, p := range []hubdata.Protocol{hubdata.MQTT, hubdata.AMQP, hubdata.HTTP} {
			if table[name].Protocols()&p != 0 {
				k.Protocols = append(k.Protocols, strings.ToLower(p.String()))
			}
		}
		k.add(fieldsOf(table[name], &fault.Fault{}))
		all = append(all, k)
	}
	return all
}

// dpsKinds returns the kinds that happen only at a provisioning service.
func dpsKinds() []fault.Kind { return append(fault.ProvisioningKinds(), fault.RefuseUpdate) }

// daemonKinds describes the faults of the workload API.
func daemonKinds() []faultKind {
	all := []faultKind{}
	table := workloadKinds()
	for _, name := range slices.Sorted(maps.Keys(table)) {
		k := faultKind{Kind: name, Does: kindDoes()["workload."+name], Request: "POST /workload/faults"}
		k.add(workloadFieldsOf(table[name], &workload.Fault{}))
		all = append(all, k)
	}
	return all
}

func (k *faultKind) add(fields []field) {
	for _, f := range fields {
		k.Fields, k.Inputs = append(k.Fields, f.name), append(k.Inputs, f.form)
	}
}
