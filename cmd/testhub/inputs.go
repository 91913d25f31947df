package main

import (
	"context"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// sendInput queues a message for an input of a module.
func (c *control) sendInput(r *call) (any, *refusal) {
	var m hubdata.C2D
	if problem := readMessage(r, &m, text("messageId", &m.MessageID), text("correlationId", &m.CorrelationID),
		text("contentType", &m.ContentType), text("contentEncoding", &m.ContentEncoding),
		moment("expiry", &m.Expiry), properties("properties", &m.Properties)); problem != nil {
		return nil, problem
	}
	if err := c.hub.SendInput(r.device(), r.PathValue("input"), m); err != nil {
		return nil, sendProblem(r.device(), err, bad("input", "", "give another name, or send less"))
	}
	return map[string]any{"device": r.device(), "input": r.PathValue("input")}, nil
}

// An inputMessage is a message to an input, with its state.
type inputMessage struct {
	Input string `json:"input"`
	c2dMessage
}

func (c *control) inputLog(id string, count int) []inputMessage {
	all := []inputMessage{}
	for _, record := range lastOf(c.hub.InputLog(id), count) {
		all = append(all, inputMessage{record.Input, c2dRecord(&record)})
	}
	return all
}

func (c *control) listInputs(r *call) (any, *refusal) {
	count := 0
	if problem := r.query(last(&count)); problem != nil {
		return nil, problem
	}
	return map[string]any{"inputs": c.inputLog(r.device(), count)}, nil
}

func (c *control) waitInputs(r *call) (any, *refusal) {
	id, state, count := r.device(), hubdata.Completed, 1
	have := func() any { return map[string]int{state.String(): c.hub.CountInputs(id, state)} }
	wait := func(ctx context.Context) error { return c.hub.WaitInputs(ctx, id, state, count) }
	problem := c.waits(r, have, wait, choice("state", states, &state), whole("count", 1, 1<<20, &count))
	return map[string]any{"inputs": c.inputLog(id, 0)}, problem
}
