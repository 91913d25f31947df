package main

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

type deviceState struct {
	Device      string `json:"device"`
	Connections int    `json:"connections"`
}

func (c *control) devices(r *call) (any, *refusal) {
	all := []deviceState{}
	for _, d := range c.hub.Devices() {
		id := join(d.ID, d.ModuleID)
		all = append(all, deviceState{id, c.hub.Connections(id)})
	}
	return map[string]any{"devices": all}, r.query()
}

func (c *control) cutDevice(r *call) (any, *refusal)   { return c.end(r, c.hub.Drop) }
func (c *control) closeDevice(r *call) (any, *refusal) { return c.end(r, c.hub.CloseConnections) }

func (c *control) end(r *call, how func(string) int) (any, *refusal) {
	id, problem := c.device(r)
	if problem == nil {
		problem = r.read()
	}
	if problem != nil {
		return nil, problem
	}
	return map[string]any{"connections": how(id)}, nil
}

func (c *control) enable(r *call) (any, *refusal)  { return c.setEnabled(r, true) }
func (c *control) disable(r *call) (any, *refusal) { return c.setEnabled(r, false) }

func (c *control) setEnabled(r *call, on bool) (any, *refusal) {
	id, problem := c.device(r)
	if problem == nil {
		problem = r.read()
	}
	if problem != nil {
		return nil, problem
	}
	if err := c.hub.SetEnabled(id, on); err != nil {
		return nil, bad("device", id+" is a module, which has no status of its own", "name its device")
	}
	return map[string]any{"enabled": on}, nil
}

func (c *control) waitConnections(r *call) (any, *refusal) {
	want, limit := 1, time.Duration(0)
	id, problem := c.device(r)
	if problem == nil {
		problem = r.query(whole("connections", 0, 1000, &want), within(&limit))
	}
	if problem != nil {
		return nil, problem
	}
	state := func() any { return deviceState{id, c.hub.Connections(id)} }
	problem = c.waits(r, limit, state, func(ctx context.Context) error {
		return c.hub.Wait(ctx, func([]hubdata.Message) bool {
			n := c.hub.Connections(id)
			return n >= want && (want > 0 || n == 0)
		})
	})
	return state(), problem
}
