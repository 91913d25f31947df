package amqpfront

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// A scope is the resource of a token: an identity, or a path below the host for a policy.
type scope struct {
	id     identity.Identity // of a token for one identity
	policy string            // empty for the token of an identity
	path   string            // of a policy's token, in lower case, without slashes at the ends
}

// A grantKey tells grants apart. A token replaces a grant of the same rights only: neither one of
// more rights, nor that of a policy's key.
type grantKey struct {
	scope
	rights  hubdata.Right
	endless bool // by a key
}

// deviceGrant returns the key of the grant for one identity.
func deviceGrant(id identity.Identity) grantKey {
	return grantKey{scope: scope{id: id}, rights: hubdata.RightDeviceConnect}
}

// A grant is the right that a token, or the key of a policy, gives until it expires. Guarded by
// Front.mu.
type grant struct {
	until time.Time   // zero: no end
	timer *time.Timer // nil: no end
}

func (g *grant) inForce(now time.Time) bool { return g.until.IsZero() || now.Before(g.until) }

func (g *grant) stop() {
	if g.timer != nil {
		g.timer.Stop()
	}
}

// serves reports whether a grant lets a client act for an identity.
func (k grantKey) serves(id identity.Identity) bool {
	if k.policy == "" {
		return k.id == id
	}
	return k.rights&hubdata.RightDeviceConnect != 0 && k.allDevices()
}

// allDevices reports whether the scope of a policy includes every device.
func (s scope) allDevices() bool { return s.path == "" || s.path == "devices" }

// covers reports whether a path is the resource of a policy's token or below it, by whole segments
// and in any letter case.
func (s scope) covers(path string) bool {
	path = strings.ToLower(path)
	return s.policy != "" && (s.path == "" || path == s.path || strings.HasPrefix(path, s.path+"/"))
}

// granted is grantedLocked for callers without the lock.
func (a *conn) granted(id identity.Identity) bool {
	a.front.mu.Lock()
	defer a.front.mu.Unlock()
	return a.grantedLocked(id)
}

// grantedLocked reports whether a token covers an identity.
func (a *conn) grantedLocked(id identity.Identity) bool {
	now := a.hub.Now()
	if g := a.grants[deviceGrant(id)]; g != nil && g.inForce(now) {
		return true
	}
	for k, g := range a.grants {
		if k.policy != "" && k.serves(id) && g.inForce(now) {
			return true
		}
	}
	return false
}

// allowed returns nil if a policy's token that covers a path, or its key, gives one of the rights.
func (a *conn) allowed(path string, need hubdata.Right) error {
	a.front.mu.Lock()
	defer a.front.mu.Unlock()
	return a.allowedLocked(path, need)
}

func (a *conn) allowedLocked(path string, need hubdata.Right) error {
	now := a.hub.Now()
	why := errors.New("no token of a policy was put on this connection")
	for k, g := range a.grants {
		switch {
		case k.policy == "" || !g.inForce(now):
		case k.rights&need == 0:
			why = fmt.Errorf("the policy %q does not have the right", k.policy)
		case !k.covers(path):
			why = fmt.Errorf("the token of the policy %q is for %q", k.policy, k.path)
		default:
			return nil
		}
	}
	return fmt.Errorf("%q: %w", path, why)
}

// errTooManyTokens is the refusal of a token beyond the limit.
var errTooManyTokens = errors.New("403005 IotHubMaxCbsTokenExceeded")

// grant adds a right until a time, or without end if that is zero. When a token from SASL expires,
// the connection ends.
func (a *conn) grant(s scope, rights hubdata.Right, until time.Time, sasl bool) error {
	h := a.hub
	a.front.mu.Lock()
	if a.ended {
		a.front.mu.Unlock()
		return net.ErrClosed
	}
	k := grantKey{s, rights, until.IsZero()}
	before := a.grants[k]
	if before == nil && len(a.grants) >= h.AMQP.MaxTokens {
		a.front.mu.Unlock()
		return errTooManyTokens
	}
	if before != nil {
		before.stop()
	}
	g := &grant{until: until}
	a.grants[k] = g
	if !until.IsZero() {
		g.timer = time.AfterFunc(max(until.Sub(h.Now()), 0), func() { a.expire(k, g, sasl) })
	}
	a.front.mu.Unlock()
	if s.policy != "" {
		a.served()
	}
	a.admit(s.id)
	return nil
}

// expire runs when a token expires: it detaches the links that the token allowed.
func (a *conn) expire(k grantKey, g *grant, sasl bool) {
	h := a.hub
	if !h.Enter() {
		return
	}
	defer h.Wg.Done()
	a.front.mu.Lock()
	if a.grants[k] != g || a.ended {
		a.front.mu.Unlock()
		return
	}
	delete(a.grants, k)
	links, lost := a.orphansLocked(k)
	a.front.mu.Unlock()
	if a.c.Mode.Load() != hub.Open {
		return
	}
	for _, who := range lost {
		h.Event(event.Event{Kind: event.Disconnected, DeviceID: who.Device, ModuleID: who.Module, Err: hub.ErrTokenExpired},
			a.c)
	}
	e := wire.Errorf(wire.UnauthorizedAccess, "401003 IotHubUnauthorized: token expired")
	if sasl {
		a.close(e, hub.ErrTokenExpired)
	} else {
		for _, l := range links {
			l.detach(e, true)
		}
	}
	h.Changed.Wake()
}

// orphansLocked returns the links that only an ended grant allowed, and removes and returns the
// identities that only it authenticated.
func (a *conn) orphansLocked(k grantKey) (links []*hubLink, lost []identity.Identity) {
	for _, l := range a.linksLocked("", fault.LinkAny) {
		if l.back != nil {
			path := l.back.resource()
			if k.covers(path) && a.allowedLocked(path, hubdata.RightServiceConnect) != nil {
				links = append(links, l)
			}
		} else if k.serves(l.id) && !a.grantedLocked(l.id) {
			links = append(links, l)
		}
	}
	for _, who := range identity.Matching(a.who, "") {
		if k.serves(who) && !a.grantedLocked(who) {
			lost = append(lost, who)
			delete(a.who, who)
		}
	}
	return links, lost
}

// scopeOf returns the scope of a token. The resource may be percent-encoded once, its device id
// twice.
func (f *Front) scopeOf(t identity.Token) (scope, error) {
	text := t.Resource
	var last scope
	found := false
	for range 2 {
		decoded, err := url.PathUnescape(text)
		if err != nil {
			break
		}
		text = decoded
		s, ok := f.scopeFrom(text, t.Policy)
		if !ok {
			continue
		}
		if last, found = s, true; s.policy != "" || f.hub.Registered(s.id) {
			break
		}
	}
	if !found {
		return scope{}, fmt.Errorf("token for %q is for no device of this hub; sign it for %s, or for a path below it",
			t.Resource, f.hub.Host)
	}
	return last, nil
}

// scopeFrom parses a resource "[scheme://]host[:port][/path]". Only back ends write a scheme, a
// port or a name other than the hub's own.
func (f *Front) scopeFrom(text, policy string) (scope, bool) {
	host, path, _ := strings.Cut(text, "/")
	if policy != "" {
		if _, rest, ok := strings.Cut(text, "://"); ok {
			host, path, _ = strings.Cut(rest, "/")
		}
		if host == "" || !f.hub.Knows(host) {
			return scope{}, false
		}
		path = strings.Trim(path, "/")
	} else if !f.hub.IsName(host) {
		return scope{}, false
	}
	part := strings.Split(path, "/")
	switch {
	case part[0] == "devices" && len(part) == 2:
		return scope{id: identity.Identity{Device: part[1]}}, true
	case part[0] == "devices" && len(part) == 4 && part[2] == "modules":
		return scope{id: identity.Identity{Device: part[1], Module: part[3]}}, true
	case policy == "":
		return scope{}, false
	}
	return scope{policy: policy, path: strings.ToLower(path)}, true
}
