package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// A deviceState is how many connections a device or module has.
type deviceState struct {
	Device      string `json:"device"`
	Connections int    `json:"connections"`
}

// A deviceEntry is a device or module in the list.
type deviceEntry struct {
	deviceState
	Enabled bool `json:"enabled"`
	// Authentication is "key" or "certificate".
	Authentication string `json:"authentication"`
	// Session is that of a connected device at a hub with the profile mqttV5.
	Session *sessionState `json:"session,omitempty"`
}

// A sessionState is what a hub with the profile mqttV5 knows of a connection.
type sessionState struct {
	// Born: the device has sent its birth message, and the hub may send. Nonce is that of the message.
	Born  bool   `json:"born"`
	Nonce string `json:"nonce,omitempty"`
	// Expiry is how long the session outlives the connection.
	Expiry string   `json:"sessionExpiry"`
	Topics []string `json:"topics"` // its subscriptions
}

// sessionOf returns the session of a connected device; nil at a classic hub.
func sessionOf(hub *testbroker.Hub, id string) *sessionState {
	s, ok := hub.Session(id)
	if !ok || !s.Connected || hub.ConnectionProfile() != nextwire.ProfileMQTTv5 {
		return nil
	}
	state := &sessionState{Born: s.Nonce != "", Nonce: s.Nonce, Expiry: s.Expiry.String(), Topics: []string{}}
	for _, f := range s.Filters {
		state.Topics = append(state.Topics, f.Filter)
	}
	return state
}

func (c *control) devices(r *call) (any, *refusal) {
	all := []deviceEntry{}
	for _, d := range c.hub.Devices() {
		id := join(d.ID, d.ModuleID)
		e := deviceEntry{deviceState{id, c.hub.Connections(id)}, !d.Disabled, "key", sessionOf(c.hub, id)}
		if d.PrimaryKey == "" {
			e.Authentication = "certificate"
		}
		all = append(all, e)
	}
	return map[string]any{"devices": all}, r.query()
}

// addDevice registers the device of the body, which is as one in the file of -devices, with its
// modules: all or none. A reset removes it. At a hub with the profile mqttV5 the answer has a
// certificate with its key, in PEM, unless the body names one.
func (c *control) addDevice(r *call) (any, *refusal) {
	problem := r.query()
	var all []entry
	if problem == nil {
		problem = readDevice(r.body, "", "", &all)
	}
	if problem != nil {
		problem.Field = strings.TrimPrefix(problem.Field, ".")
		return nil, problem
	}
	made := []readyDevice{}
	for i := range all {
		e := &all[i]
		var certificate []byte
		err := error(nil)
		if c.hub.ConnectionProfile() == nextwire.ProfileMQTTv5 {
			e.certify()
			certificate, err = e.pem()
		}
		if err == nil {
			err = e.register(c.hub)
		}
		if err != nil {
			for _, d := range made {
				c.hub.RemoveDevice(d.Device) // a module has perhaps gone with its device
			}
			return nil, registryProblem(e.id, err)
		}
		made = append(made, readyDevice{Device: e.id, ConnectionString: c.hub.ConnectionString(e.id),
			Certificate: string(certificate)})
	}
	return struct {
		readyDevice
		Modules []readyDevice `json:"modules,omitempty"`
	}{made[0], made[1:]}, nil
}

// registryProblem converts an error of the registry to a refusal.
func registryProblem(id string, err error) *refusal {
	switch {
	case errors.Is(err, testbroker.ErrExists):
		return &refusal{status: http.StatusConflict, Field: "id", Problem: id + " is registered already",
			Fix: "give another id, or DELETE /devices/" + url.PathEscape(id)}
	case errors.Is(err, testbroker.ErrNotFound):
		return &refusal{status: http.StatusNotFound, Field: "id", Problem: "the device of " + id + " is not registered",
			Fix: "add the device first"}
	}
	return bad("id", strings.TrimPrefix(err.Error(), "testbroker: "), "change it to what the service takes")
}

func (c *control) removeDevice(r *call) (any, *refusal) {
	if c.hub.RemoveDevice(r.device()) != nil {
		return nil, noDevice(r.device()) // removed meanwhile
	}
	return map[string]any{"device": r.device()}, nil
}

func endConnections(how func(hub *testbroker.Hub, id string) int) handler {
	return bare(func(c *control, r *call) (any, *refusal) {
		return map[string]any{"connections": how(c.hub, r.device())}, nil
	})
}

func setEnabled(on bool) handler {
	return bare(func(c *control, r *call) (any, *refusal) {
		if err := c.hub.SetEnabled(r.device(), on); err != nil {
			return nil, bad("device", r.device()+" is a module, which has no status of its own", "name its device")
		}
		return map[string]any{"enabled": on}, nil
	})
}

func (c *control) waitConnections(r *call) (any, *refusal) {
	id, want := r.device(), 1
	state := func() any { return deviceState{id, c.hub.Connections(id)} }
	problem := c.waits(r, state, func(ctx context.Context) error {
		return c.hub.Wait(ctx, func([]hubdata.Message) bool {
			n := c.hub.Connections(id)
			return n >= want && (want > 0 || n == 0)
		})
	}, whole("connections", 0, 1000, &want))
	return state(), problem
}
