package hub

import (
	"maps"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// noteAnswer sets the fate of an answer, unless it is set, and logs the answer. refused says why
// the answer is invalid, if it is.
func (h *Hub) noteAnswer(c *Conn, call *methodCall, a *hubdata.MethodAnswer, refused error) {
	h.calls.mu.Lock()
	defer h.calls.mu.Unlock()
	switch {
	case a.Fate == hubdata.AnswerLost:
	case call == nil, call.agreed != nil && !call.hasAgreed():
		a.Fate = hubdata.AnswerUnknown
	case call.to != c && call.agreed == nil:
		a.Fate = hubdata.AnswerElsewhere
	case refused != nil && h.endCallLocked(call, hubdata.MethodResult{}, refused):
		a.Fate = hubdata.AnswerRefused
	case refused == nil && h.endCallLocked(call, a.MethodResult, nil):
		a.Fate = hubdata.AnswerTaken
	case call.Err == nil:
		a.Fate = hubdata.AnswerRepeated
	default:
		a.Fate = hubdata.AnswerLate
	}
	h.calls.answers.Add(a)
}

// MethodLog returns the calls to a device, in order.
func (h *Hub) MethodLog(device string) []hubdata.MethodRecord {
	h.calls.mu.Lock()
	defer h.calls.mu.Unlock()
	var all []hubdata.MethodRecord
	for _, call := range h.calls.log.Entries {
		if call.id.Matches(device) {
			r := call.MethodRecord
			r.Payload, r.Result.Payload = slices.Clone(r.Payload), slices.Clone(r.Result.Payload)
			all = append(all, r)
		}
	}
	return all
}

// MethodAnswers returns the answers of a device, in order of arrival, including answers that match
// no call.
func (h *Hub) MethodAnswers(device string) []hubdata.MethodAnswer {
	h.calls.mu.Lock()
	defer h.calls.mu.Unlock()
	var all []hubdata.MethodAnswer
	for _, a := range h.calls.answers.Entries {
		if (identity.Identity{Device: a.DeviceID, Module: a.ModuleID}).Matches(device) {
			r := *a
			r.Payload = slices.Clone(r.Payload)
			all = append(all, r)
		}
	}
	return all
}

func (m *methodCalls) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.log.Entries
	m.log.Clear()
	m.log.Entries = slices.DeleteFunc(calls, func(c *methodCall) bool {
		_, open := m.open[c]
		return !open
	})
	maps.DeleteFunc(m.named, func(_ callName, c *methodCall) bool {
		_, open := m.open[c]
		return !open
	})
	m.answers.Clear()
}
