package main

import (
	"context"
	"net/http"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// certificate returns the certificates that clients must trust, for those that cannot read the
// file.
func (c *control) certificate(r *call) (any, *refusal) {
	return map[string]string{"pem": string(c.trust())}, r.query()
}

// rotate replaces the hub's certificate and its authority.
func (c *control) rotate(r *call) (any, *refusal) {
	cut := false
	if problem := r.read(flagField("cut", &cut)); problem != nil {
		return nil, problem
	}
	c.hub.RotateCertificate()
	path, err := c.writeCA()
	if err != nil {
		return nil, &refusal{status: http.StatusInternalServerError, Problem: err.Error(), Fix: "make room for the file"}
	}
	ended := 0
	if cut {
		ended = c.hub.Drop("")
	}
	return map[string]any{"ca": path, "connections": ended}, nil
}

// A gatewayState is the state of the gateway.
type gatewayState struct {
	Gateway string `json:"gateway"`
	Stopped bool   `json:"stopped"`
	Offline bool   `json:"offline"`
	Stored  int    `json:"stored"`
}

func (c *control) gatewayState() gatewayState {
	s := c.hub.GatewayState()
	return gatewayState{s.Name, s.Stopped, s.Offline, s.Stored}
}

func (c *control) aboutGateway(r *call) (any, *refusal) {
	return c.gatewayState(), r.query()
}

// turnGateway changes the state of the gateway.
func turnGateway(how func(*testbroker.Hub) error) handler {
	return bare(func(c *control, _ *call) (any, *refusal) {
		if err := how(c.hub); err != nil {
			return nil, &refusal{status: http.StatusServiceUnavailable, Problem: err.Error(), Fix: "start testhub again"}
		}
		return c.gatewayState(), nil
	})
}

// waitGateway waits until at most so many messages are stored.
func (c *control) waitGateway(r *call) (any, *refusal) {
	stored := 0
	problem := c.waits(r, func() any { return c.gatewayState() }, func(ctx context.Context) error {
		return c.hub.Wait(ctx, func([]hubdata.Message) bool { return c.hub.Stored() <= stored })
	}, whole("stored", 0, 1<<30, &stored))
	return c.gatewayState(), problem
}
