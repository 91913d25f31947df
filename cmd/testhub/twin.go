package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

type twin struct {
	Device          string          `json:"device"`
	Desired         json.RawMessage `json:"desired"`
	DesiredVersion  int64           `json:"desiredVersion"`
	Reported        json.RawMessage `json:"reported"`
	ReportedVersion int64           `json:"reportedVersion"`
	Tags            json.RawMessage `json:"tags"`
	ETag            string          `json:"etag"`
	ModelID         string          `json:"modelId,omitempty"`
}

func showTwin(t hubdata.Twin) twin {
	return twin{join(t.DeviceID, t.ModuleID), t.Desired, t.DesiredVersion, t.Reported, t.ReportedVersion, t.Tags, t.ETag,
		t.ModelID}
}

func (c *control) twin(r *call) (any, *refusal) {
	if problem := r.query(); problem != nil {
		return nil, problem
	}
	t, err := c.hub.Twin(r.device())
	if err != nil {
		return nil, noDevice(r.device()) // removed meanwhile
	}
	return showTwin(t), nil
}

// changeTwin changes the desired properties of a twin or its tags. With the header If-Match, the
// twin must have that etag.
func (c *control) changeTwin(r *call) (any, *refusal) {
	change := hubdata.TwinChange{Replace: r.Method == http.MethodPut}
	if strings.HasSuffix(r.URL.Path, "/tags") {
		change.Tags = string(r.body)
	} else {
		change.Desired = string(r.body)
	}
	problem := r.query()
	const fix = "give an object of JSON within the limits of the service"
	if problem == nil && len(r.body) == 0 {
		problem = bad("body", "is empty", fix)
	}
	if problem != nil {
		return nil, problem
	}
	change.ETag = strings.Trim(r.Header.Get("If-Match"), `"`)
	t, err := c.hub.ChangeTwin(r.device(), change)
	if err != nil {
		problem := serviceProblem(err, "body", fix)
		if problem.status == http.StatusPreconditionFailed {
			problem.Field, problem.Fix = "If-Match", "read the twin again, and change that one"
		}
		return nil, problem
	}
	return showTwin(t), nil
}

// serviceProblem converts an error of the hub to a refusal with the service's code.
func serviceProblem(err error, field, fix string) *refusal {
	var s *hubdata.ServiceError
	if !errors.As(err, &s) {
		return &refusal{status: http.StatusInternalServerError, Problem: err.Error(), Fix: "try again"}
	}
	p := &refusal{status: s.Status(), Problem: s.Name + ": " + s.Message, Fix: fix, Code: s.Code}
	if p.status == http.StatusBadRequest || p.status == http.StatusRequestEntityTooLarge {
		p.Field = field
	}
	return p
}

func (c *control) waitTwin(r *call) (any, *refusal) {
	var reported, desired, tags json.RawMessage
	var limit time.Duration
	problem := r.read(object("reported", &reported), object("desired", &desired), object("tags", &tags), within(&limit))
	if problem == nil && reported == nil && desired == nil && tags == nil {
		problem = bad("reported", "is missing",
			`give the members that must be there, such as {"fan":{"on":true}}, or desired, or tags`)
	}
	if problem != nil {
		return nil, problem
	}
	var last twin
	problem = c.waitFor(r, limit, func() any { return last }, func(ctx context.Context) error {
		return c.hub.WaitReported(ctx, r.device(), func(t hubdata.Twin) bool {
			last = showTwin(t)
			return hasMembers(t.Reported, reported) && hasMembers(t.Desired, desired) && hasMembers(t.Tags, tags)
		})
	})
	return last, problem
}

// hasMembers reports whether a JSON object has all members of another; nil has none.
func hasMembers(object, members json.RawMessage) bool {
	var have, want any
	return members == nil || json.Unmarshal(object, &have) == nil && json.Unmarshal(members, &want) == nil &&
		contains(have, want)
}

// contains reports whether a JSON value has all members of an object, with the same values. A null
// in want matches an absent member.
func contains(have, want any) bool {
	members, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(have, want)
	}
	in, ok := have.(map[string]any)
	if !ok {
		return false
	}
	for name, v := range members {
		if got, ok := in[name]; ok != (v != nil) || ok && !contains(got, v) {
			return false
		}
	}
	return true
}
