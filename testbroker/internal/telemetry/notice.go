package telemetry

import (
	"cmp"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// Notifies reports whether the log takes notices of a source.
func (l *Log) Notifies(source hubdata.EventSource) bool { return slices.Contains(l.sources, source) }

// A Notice is an event that is not telemetry.
type Notice struct {
	Source            hubdata.EventSource
	ID                identity.Identity
	Schema, Operation string // without an operation the event names none
	ContentType       string // empty: JSON
	Body              []byte
}

// Notify adds a notice. The caller may hold any lock but that of the log.
func (l *Log) Notify(n Notice) {
	now := l.now()
	m := hubdata.Message{
		DeviceID: n.ID.Device, ModuleID: n.ID.Module, UserID: l.hubName, Schema: n.Schema, Received: now, Body: n.Body,
		ContentType: cmp.Or(n.ContentType, "application/json"), ContentEncoding: "utf-8",
	}
	for _, p := range [...]hubdata.Property{
		{Name: "hubName", Value: l.hubName}, {Name: "deviceId", Value: n.ID.Device}, {Name: "moduleId", Value: n.ID.Module},
		{Name: "opType", Value: n.Operation}, {Name: "operationTimestamp", Value: document.TimeText(now)},
	} {
		if p.Value != "" {
			m.Properties = append(m.Properties, p)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addEventLocked(n.ID.Device, now, event{notice: &notice{l.messages.Total(), n.Source, m}})
}
