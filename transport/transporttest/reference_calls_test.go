package transporttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// The reference hub's twin and methods.

type refTwin struct {
	desired, reported               map[string]any
	desiredVersion, reportedVersion int64
}

type refCall struct {
	name, body string
	answer     chan transport.Request
}

// merged merges by RFC 7396.
func merged(to, patch map[string]any) map[string]any {
	to = maps.Clone(to)
	for k, v := range patch {
		if v == nil {
			delete(to, k)
		} else {
			to[k] = v
		}
	}
	return to
}

func text(m map[string]any, version int64) string {
	if m = maps.Clone(m); version > 0 {
		m["$version"] = version
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (h *refHub) PatchDesired(patch string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var p map[string]any
	if err := json.Unmarshal([]byte(patch), &p); err != nil {
		panic(err)
	}
	h.twin.desired = merged(h.twin.desired, p)
	h.twin.desiredVersion++
	p["$version"] = h.twin.desiredVersion
	body := text(p, 0)
	for s := range h.sessions {
		s.mu.Lock()
		if s.wanted&transport.FeatureDesired != 0 {
			s.down = append(s.down, &transport.Delivery{Kind: transport.FeatureDesired, Version: h.twin.desiredVersion,
				Msg: &transport.Message{Body: []byte(body)}})
		}
		s.mu.Unlock()
		s.notify()
	}
}

func (h *refHub) Reported() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return text(h.twin.reported, 0)
}

func (h *refHub) Call(name, body string) (status int, answer string, err error) {
	h.mu.Lock()
	c := &refCall{name, body, make(chan transport.Request, 1)}
	h.calls = append(h.calls, c)
	ref := strconv.Itoa(len(h.calls))
	for s := range h.sessions {
		s.mu.Lock()
		s.down = append(s.down, &transport.Delivery{Kind: transport.FeatureMethods, Name: []byte(name), Ref: []byte(ref),
			Msg: &transport.Message{Body: []byte(body)}})
		s.mu.Unlock()
		s.notify()
	}
	h.mu.Unlock()
	select {
	case r := <-c.answer:
		return r.Status, string(r.Body), nil
	case <-time.After(time.Hour):
		return 0, "", errors.New("no answer")
	}
}

// twinRequest answers a twin request.
func (s *refSession) twinRequest(r *transport.Request) {
	h := s.t.hub
	h.mu.Lock()
	reply := transport.Reply{Status: 200}
	refuse := func(k transport.Kind) { reply.Err = refError(transport.ScopeOperation, r.Op, k, "refused") }
	var patch map[string]any
	switch {
	case r.Op == transport.OpTwinGet:
		reply.Body = []byte(`{"desired":` + text(h.twin.desired, h.twin.desiredVersion) + `,"reported":` +
			text(h.twin.reported, h.twin.reportedVersion) + `}`)
	case json.Unmarshal(r.Body, &patch) != nil || strings.Contains(string(r.Body), "a b"):
		if refuse(transport.Invalid); s.t.fault == "refused patches have the wrong kind" {
			refuse(transport.Unavailable)
		}
	case r.Version != 0 && r.Version != h.twin.reportedVersion && s.t.fault != "the expected version is lost":
		refuse(transport.Conflict)
	default:
		if s.t.fault != "patches are lost" {
			h.twin.reported = merged(h.twin.reported, patch)
		}
		h.twin.reportedVersion++
		if reply.Version = h.twin.reportedVersion; s.t.fault == "the version is lost" {
			reply.Version = 0
		}
	}
	h.mu.Unlock()
	if s.t.fault == "every tenth request is not replied to" && r.ID%10 == 9 {
		return
	}
	s.cfg.Sink.Reply(r.ID, reply)
	if s.t.fault == "requests are replied to twice" {
		s.cfg.Sink.Reply(r.ID, reply)
	}
}

// passDown delivers changes and method calls.
func (s *refSession) passDown() {
	s.mu.Lock()
	down := s.down
	s.down = nil
	s.mu.Unlock()
	for _, d := range down {
		if s.wanted&d.Kind == 0 {
			continue
		}
		switch s.t.fault {
		case "versions of changes are lost":
			d.Version = 0
		case "changes come twice":
			s.cfg.Sink.Deliver(d)
		case "names of methods are lost":
			d.Name = nil
		}
		s.cfg.Sink.Deliver(d)
	}
}

func (s *refSession) respond(r *transport.Request) {
	i, err := strconv.Atoi(string(r.Ref))
	if err != nil {
		return
	}
	if s.t.fault == "answers go to the first call" {
		i = 1
	}
	h := s.t.hub
	h.mu.Lock()
	c := h.calls[i-1]
	h.mu.Unlock()
	select {
	case c.answer <- *r:
	default:
	}
}

// kept returns a copy of r that does not share memory with it.
func kept(r *transport.Request) transport.Request {
	own := *r
	own.Ref, own.Body = bytes.Clone(r.Ref), bytes.Clone(r.Body)
	return own
}

var (
	_ Twins   = (*refHub)(nil)
	_ Methods = (*refHub)(nil)
)
