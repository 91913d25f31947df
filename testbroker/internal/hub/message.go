package hub

import (
	"slices"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// MaxBatch is how many messages a batch may hold.
const MaxBatch = 500

func cloneMessage(m hubdata.Message) hubdata.Message {
	m.System = slices.Clone(m.System)
	m.Properties = slices.Clone(m.Properties)
	m.Body = slices.Clone(m.Body)
	return m
}

func SenderOf(m *hubdata.Message) Identity { return Identity{m.DeviceID, m.ModuleID} }

// SizeOf returns the size of a message as the service's limit counts it.
func SizeOf(m *hubdata.Message) int {
	n := len(m.Body)
	for _, p := range m.System {
		n += len(p.Value)
	}
	for _, p := range m.Properties {
		n += len(p.Name) + len(p.Value)
	}
	return n
}
