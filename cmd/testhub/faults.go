package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
)

// maxFaults is how many declared faults may exist at a time.
const maxFaults = 1000

// declared is a fault that was declared and not removed.
type declared struct {
	ID    int             `json:"id"`
	Fault json.RawMessage `json:"fault"` // as in the request
	Fired int             `json:"fired"`

	injected injected
}

// injected is a fault in force, of a hub, a provisioning service or a workload API.
type injected interface {
	Fired() int
	WaitFired(ctx context.Context, n int) error
	Remove()
}

// snapshot returns a copy with the present count.
func (d *declared) snapshot() declared {
	return declared{ID: d.ID, Fault: d.Fault, Fired: d.injected.Fired()}
}

func (c *control) inject(r *call) (any, *refusal) {
	if problem := r.query(); problem != nil {
		return nil, problem
	}
	f, problem := readFault(r.body)
	if problem == nil && slices.Contains(dpsKinds(), f.Kind) {
		problem = bad("kind", f.Kind.String()+" happens only at a provisioning service", "POST /dps/faults declares it there")
	}
	if problem == nil {
		if problem = c.selector(f.Device); problem != nil {
			problem.status = http.StatusBadRequest
		}
	}
	if problem != nil {
		return nil, problem
	}
	return c.declare(r, func() injected { return c.hub.Inject(f) })
}

// injectDPS declares a fault of the provisioning service. Its device is a registration id, which
// need not be known.
func (c *control) injectDPS(r *call) (any, *refusal) {
	if problem := r.query(); problem != nil {
		return nil, problem
	}
	f, problem := readFault(r.body)
	if problem != nil {
		return nil, problem
	}
	return c.declare(r, func() injected { return c.provider.dps.Inject(f) })
}

// declare puts a fault in force.
func (c *control) declare(r *call, inject func() injected) (any, *refusal) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, r.body); err != nil {
		return nil, bad("body", "is no JSON", "give an object")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.faults) >= maxFaults {
		return nil, &refusal{status: http.StatusConflict, Problem: "there are a thousand faults",
			Fix: "DELETE those that are done with"}
	}
	c.made++
	d := &declared{ID: c.made, Fault: compact.Bytes(), injected: inject()}
	c.faults = append(c.faults, d)
	return d.snapshot(), nil
}

func (c *control) listFaults(r *call) (any, *refusal) {
	all := []declared{}
	c.mu.Lock()
	for _, d := range c.faults {
		all = append(all, d.snapshot())
	}
	c.mu.Unlock()
	return map[string]any{"faults": all}, r.query()
}

// find returns the fault in the path.
func (c *control) find(r *call) (*declared, *refusal) {
	id, err := strconv.Atoi(r.PathValue("fault"))
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.faults, func(d *declared) bool { return d.ID == id })
	if err != nil || i < 0 {
		return nil, &refusal{status: http.StatusNotFound, Field: "fault", Problem: "there is no fault " +
			r.PathValue("fault"), Fix: "GET /faults lists them"}
	}
	return c.faults[i], nil
}

func (c *control) fault(r *call) (any, *refusal) {
	d, problem := c.find(r)
	if problem == nil {
		problem = r.query()
	}
	if problem != nil {
		return nil, problem
	}
	return d.snapshot(), nil
}

func (c *control) waitFault(r *call) (any, *refusal) {
	d, problem := c.find(r)
	if problem != nil {
		return nil, problem
	}
	count := 1
	problem = c.waits(r, func() any { return d.snapshot() },
		func(ctx context.Context) error { return d.injected.WaitFired(ctx, count) }, whole("count", 1, 1<<30, &count))
	return d.snapshot(), problem
}

func (c *control) removeFault(r *call) (any, *refusal) {
	d, problem := c.find(r)
	if problem == nil {
		problem = r.read()
	}
	if problem != nil {
		return nil, problem
	}
	c.mu.Lock()
	c.faults = slices.DeleteFunc(c.faults, func(other *declared) bool { return other == d })
	c.mu.Unlock()
	d.injected.Remove()
	return d.snapshot(), nil
}

func (c *control) removeFaults(r *call) (any, *refusal) {
	c.mu.Lock()
	gone := c.faults
	c.faults = nil
	c.mu.Unlock()
	for _, d := range gone {
		d.injected.Remove()
	}
	return map[string]any{"removed": len(gone)}, nil
}
