package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// A c2dMessage is a C2D message with its state.
type c2dMessage struct {
	Device     string            `json:"device"`
	Sequence   int               `json:"sequence"`
	MessageID  string            `json:"messageId,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
	body
	State      string     `json:"state"`
	Deliveries int        `json:"deliveries"`
	Connection uint64     `json:"connection,omitempty"`
	Enqueued   time.Time  `json:"enqueued"`
	Expires    time.Time  `json:"expires"`
	Ended      *time.Time `json:"ended,omitempty"`
	Feedback   string     `json:"feedback,omitempty"`
}

func c2dRecord(r hubdata.C2DRecord) c2dMessage {
	c := c2dMessage{
		Device: join(r.DeviceID, r.ModuleID), Sequence: r.Sequence, MessageID: r.C2D.MessageID,
		Properties: showProperties(r.C2D.Properties),
		body:       showBody(r.C2D.Body), State: r.State.String(), Deliveries: r.Deliveries, Connection: r.Connection,
		Enqueued: r.Enqueued, Expires: r.C2D.Expiry.UTC(), Feedback: r.Feedback,
	}
	if !r.Ended.IsZero() {
		c.Ended = &r.Ended
	}
	return c
}

// states maps the names of C2D states to the states.
var states = func() map[string]hubdata.C2DState {
	m := make(map[string]hubdata.C2DState)
	for s := hubdata.C2DEnqueued; s <= hubdata.C2DRejected; s++ {
		m[s.String()] = s
	}
	return m
}()

// properties is a field for an object with string members, kept in order.
func properties(name string, into *[]hubdata.Property) field {
	return field{name: name, take: func(raw json.RawMessage, path string) *refusal {
		d := json.NewDecoder(bytes.NewReader(raw))
		if open, err := d.Token(); err != nil || open != json.Delim('{') {
			return bad(path, "is no object", `give an object of texts, such as {"unit":"C"}`)
		}
		for d.More() {
			name, _ := d.Token()
			v, _ := d.Token()
			n, _ := name.(string)
			text, ok := v.(string)
			switch {
			case n == "":
				return bad(path, "has a property without a name", "name it")
			case !ok:
				return bad(path+"."+n, "is no text", "give a text, also for numbers")
			}
			*into = append(*into, hubdata.Property{Name: n, Value: text})
		}
		return nil
	}}
}

func (c *control) sendC2D(r *call) (any, *refusal) {
	var m hubdata.C2D
	acks := map[string]string{"none": "none", "positive": "positive", "negative": "negative", "full": "full"}
	fields := []field{
		text("messageId", &m.MessageID), text("correlationId", &m.CorrelationID), text("userId", &m.UserID),
		text("contentType", &m.ContentType),
		text("contentEncoding", &m.ContentEncoding), choice("ack", acks, &m.Ack), moment("expiry", &m.Expiry),
		properties("properties", &m.Properties), text("topic", &m.Topic), text("responseTopic", &m.ResponseTopic),
		flagField("retain", &m.Retain),
	}
	if problem := readMessage(r, &m, fields...); problem != nil {
		return nil, problem
	}
	if len(m.Body) > hubdata.MaxC2D {
		return nil, bad("body", "has more than 64 KiB", "send less")
	}
	if err := c.hub.SendC2D(r.device(), m); err != nil {
		wrong := bad("properties", "", "send less")
		if m.Topic != "" || m.ResponseTopic != "" || m.Retain {
			wrong = bad("topic", "", "give a topic name, and start testhub with -broker")
		}
		return nil, sendProblem(r.device(), err, wrong)
	}
	return map[string]any{"device": r.device()}, nil
}

// sendProblem converts an error of a message that the hub did not take. wrong is for a message that
// does not fit.
func sendProblem(id string, err error, wrong *refusal) *refusal {
	switch {
	case errors.Is(err, testbroker.ErrQueueFull):
		return &refusal{status: http.StatusTooManyRequests, Problem: "the queue of " + id + " is full",
			Fix: "have it take some, or DELETE its queue"}
	case errors.Is(err, testbroker.ErrQuota):
		return &refusal{status: http.StatusForbidden, Problem: "the fault Quota has used up the messages of the day",
			Fix: "remove it"}
	case errors.Is(err, testbroker.ErrNotFound):
		return noDevice(id)
	case errors.Is(err, testbroker.ErrClosed):
		return ending()
	}
	wrong.Problem = strings.TrimPrefix(err.Error(), "testbroker: ")
	return wrong
}

// readMessage reads a message with these fields and its body.
func readMessage(r *call, m *hubdata.C2D, fields ...field) *refusal {
	var words *string
	fields = append(fields, value("body", `a text; JSON goes into it as a text too: "{\"on\":true}"`, &words, nil),
		rawBytes("bodyBase64", &m.Body))
	if problem := r.read(fields...); problem != nil {
		return problem
	}
	switch {
	case words != nil && m.Body != nil:
		return bad("bodyBase64", "is there together with body", "leave one of them out")
	case words != nil:
		m.Body = []byte(*words)
	}
	if len(m.MessageID) > hubdata.MaxMessageID {
		return bad("messageId", "has more than 128 characters", "give a shorter one")
	}
	return nil
}

func (c *control) c2dLog(r *call, count int) any {
	return each(lastOf(c.hub.C2DLog(r.device()), count), c2dRecord)
}

func (c *control) waitC2D(r *call) (any, *refusal) {
	id, state, count := r.device(), hubdata.C2DCompleted, 1
	have := func() any { return map[string]int{state.String(): c.hub.CountC2D(id, state)} }
	wait := func(ctx context.Context) error { return c.hub.WaitC2D(ctx, id, state, count) }
	problem := c.waits(r, have, wait, choice("state", states, &state), whole("count", 1, 1<<20, &count))
	return map[string]any{"c2d": c.c2dLog(r, 0)}, problem
}

func (c *control) purgeC2D(r *call) (any, *refusal) {
	return map[string]any{"purged": c.hub.PurgeC2D(r.device())}, nil
}

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

func (c *control) inputLog(r *call, count int) any {
	return each(lastOf(c.hub.InputLog(r.device()), count), func(record hubdata.C2DRecord) inputMessage {
		return inputMessage{record.Input, c2dRecord(record)}
	})
}

func (c *control) waitInputs(r *call) (any, *refusal) {
	id, state, count := r.device(), hubdata.C2DCompleted, 1
	have := func() any { return map[string]int{state.String(): c.hub.CountInputs(id, state)} }
	wait := func(ctx context.Context) error { return c.hub.WaitInputs(ctx, id, state, count) }
	problem := c.waits(r, have, wait, choice("state", states, &state), whole("count", 1, 1<<20, &count))
	return map[string]any{"inputs": c.inputLog(r, 0)}, problem
}
