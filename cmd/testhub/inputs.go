package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// sendInput queues a message for an input of a module.
func (c *control) sendInput(r *call) (any, *refusal) {
	id, problem := c.module(r)
	if problem != nil {
		return nil, problem
	}
	var m hubdata.C2D
	if problem := readMessage(r, &m, text("messageId", &m.MessageID), text("correlationId", &m.CorrelationID),
		text("contentType", &m.ContentType), text("contentEncoding", &m.ContentEncoding),
		moment("expiry", &m.Expiry), properties("properties", &m.Properties)); problem != nil {
		return nil, problem
	}
	err := c.hub.SendInput(id, r.PathValue("input"), m)
	switch {
	case err == nil:
		return map[string]any{"device": id, "input": r.PathValue("input")}, nil
	case errors.Is(err, testbroker.ErrQueueFull):
		return nil, &refusal{status: http.StatusTooManyRequests, Problem: "the module's queue is full",
			Fix: "have the module take some"}
	case errors.Is(err, testbroker.ErrNotFound):
		return nil, noDevice(id)
	case errors.Is(err, testbroker.ErrClosed):
		return nil, &refusal{status: http.StatusServiceUnavailable, Problem: "testhub is ending", Fix: "start it again"}
	}
	return nil, bad("input", strings.TrimPrefix(err.Error(), "testbroker: "), "give another name, or send less")
}

// module returns the module in the path.
func (c *control) module(r *call) (string, *refusal) {
	id, problem := c.device(r)
	if problem == nil {
		if _, _, isModule := cutModule(id); !isModule {
			problem = bad("device", id+" is a device, which has no inputs", "name a module: device%2Fmodule")
		}
	}
	return id, problem
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
	id, problem := c.module(r)
	if problem == nil {
		problem = r.query(last(&count))
	}
	if problem != nil {
		return nil, problem
	}
	return map[string]any{"inputs": c.inputLog(id, count)}, nil
}

func (c *control) waitInputs(r *call) (any, *refusal) {
	state, count, limit := hubdata.Completed, 1, time.Duration(0)
	id, problem := c.module(r)
	if problem == nil {
		problem = r.query(choice("state", states, &state), whole("count", 1, 1<<20, &count), within(&limit))
	}
	if problem != nil {
		return nil, problem
	}
	have := func() any { return map[string]int{state.String(): c.hub.CountInputs(id, state)} }
	problem = c.waits(r, limit, have, func(ctx context.Context) error { return c.hub.WaitInputs(ctx, id, state, count) })
	return map[string]any{"inputs": c.inputLog(id, 0)}, problem
}
