package main

import (
	"context"
	"net/http"

	"github.com/hubline-iot/hubline/testbroker/workload"
)

// workloadState is the state of the workload API.
type workloadState struct {
	URI     string         `json:"uri"`
	Stopped bool           `json:"stopped"`
	Calls   map[string]int `json:"calls"`
	Modules []readyModule  `json:"modules"`
}

func (c *control) workloadState() workloadState {
	s := workloadState{URI: c.daemon.URI(), Stopped: c.daemon.Stopped(), Calls: make(map[string]int),
		Modules: readyModules(c.hub, c.daemon)}
	for _, call := range workload.Calls() {
		s.Calls[call.String()] = c.daemon.Count(call)
	}
	return s
}

func (c *control) aboutWorkload(r *call) (any, *refusal) {
	return c.workloadState(), r.query()
}

// waitWorkload waits until there were so many requests for a call.
func (c *control) waitWorkload(r *call) (any, *refusal) {
	which, count := workload.CallAny, 1
	problem := c.waits(r, func() any { return c.workloadState().Calls }, func(ctx context.Context) error {
		return c.daemon.WaitCount(ctx, which, count)
	}, choice("call", workloadCalls(), &which), whole("count", 1, 1<<30, &count))
	return c.workloadState(), problem
}

func (c *control) stopWorkload(*call) (any, *refusal) {
	c.daemon.Stop()
	return c.workloadState(), nil
}

func (c *control) startWorkload(*call) (any, *refusal) {
	if err := c.daemon.Start(); err != nil {
		return nil, &refusal{status: http.StatusConflict, Problem: err.Error(), Fix: "remove the file at the socket's path"}
	}
	return c.workloadState(), nil
}

// injectWorkload declares a fault of the workload API.
func (c *control) injectWorkload(r *call) (any, *refusal) {
	if problem := r.query(); problem != nil {
		return nil, problem
	}
	f, problem := readWorkloadFault(r.body)
	if problem == nil {
		if problem = c.selector(f.Module); problem != nil {
			problem.status, problem.Field = http.StatusBadRequest, "module"
		}
	}
	if problem != nil {
		return nil, problem
	}
	return c.declare(r, func() injected { return c.daemon.Inject(f) })
}
