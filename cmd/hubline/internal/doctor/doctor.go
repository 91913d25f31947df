// Package doctor finds out why a device does not get through to its service. It walks the way of a
// connection: clock, credentials, proxy, name, ports, TLS, login, messages. Each step is a row with
// a mark, a figure and a hint. A step is not tried if one before it failed on which it depends, so
// no row is green for a thing that was not seen to work.
package doctor

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/netproxy"
	"github.com/hubline-iot/hubline/update/agent"
)

// Mark is the result of a step.
type Mark uint8

const (
	// Skipped: not tried, for the reason in the figure.
	Skipped Mark = iota
	// OK: seen to work.
	OK
	// Warn: it works, and something about it will fail or is suspect.
	Warn
	// Bad: it does not work.
	Bad
)

var markText = [...]string{Skipped: "-", OK: "ok", Warn: "warn", Bad: "BAD"}

// String returns the mark as the table shows it.
func (m Mark) String() string { return markText[m] }

// MarshalText returns the mark for JSON.
func (m Mark) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Row is the result of a step, for one port or transport if there are several.
type Row struct {
	Check  string `json:"check"`
	Mark   Mark   `json:"mark"`
	Figure string `json:"figure"`
	// Hint says what helps or, with mark OK, what the row shows.
	Hint string `json:"hint"`
	// Kind is the class of the failure, if the mark is Bad.
	Kind transport.Kind `json:"-"`

	cause bool // of the rows before it
	vague bool // the failure may have a cause that another transport names
}

// Options are limits and extent of the examination.
type Options struct {
	// Timeout limits each step.
	Timeout time.Duration
	// Hold is how long a connection is watched for a second device with the same id. 0: not watched.
	Hold time.Duration
	// Idle is how long a connection is left without traffic. 0: this is not tried.
	Idle time.Duration
	// Burst is the number of messages that are sent at once. 0: this is not tried.
	Burst int
	// NoMessages sends no message at all.
	NoMessages bool
	// UpdateProperties are those that software updates of a device that registers are chosen by. None:
	// the service is not asked for updates.
	UpdateProperties agent.Properties
}

// Probe examines one target.
type Probe struct {
	Target  *target.Target
	Options Options
	// Lookup resolves a name. Nil: the system's resolver.
	Lookup func(ctx context.Context, host string) ([]string, error)
	// FindProxy returns the proxy for a URL, or nil. Nil: there is none.
	FindProxy func(*url.URL) (*url.URL, error)
	// Getenv returns a variable of the environment. Nil: there are none.
	Getenv func(name string) string
	// OnRow is called with each row when it is known. Nil: not called.
	OnRow func(Row)

	rows    []Row
	roots   map[string]string        // the authority of a server's certificate, by host
	reached map[string]time.Duration // how long a TCP connection took, by address
}

// subject is what a step is about.
type subject struct {
	name string // in the row; empty for steps that happen once
	site *site
	// protocol is the transport, for steps about one.
	protocol *target.Protocol
}

// check is a step.
type check struct {
	name string
	// about is the hint of a row without one.
	about string
	// each returns the subjects. Nil: the step happens once.
	each func(p *Probe) []subject
	// needs are the steps on which this one depends: those about the same site or transport, or that
	// happen once.
	needs []string
	// cause: the steps before it failed for its reason.
	cause bool
	run   func(ctx context.Context, p *Probe, s subject) []Row
}

// checks are all steps, in their order.
var checks = []check{
	{name: "clock", about: "the clock is set", run: runClock},
	{name: "credentials", about: "complete, and not expired", run: runCredentials},
	{name: "proxy", about: "what the environment asks for", run: runProxy},
	{name: "name", about: "the name is known", each: provisioningSites, run: runName},
	{name: "port", about: "open", each: provisioningSites, needs: []string{"name"}, run: runPort},
	{name: "tls", about: "signed by a trusted authority, for this name", each: provisioningSites,
		needs: []string{"port"}, run: runTLS},
	{name: "registration", about: "the provisioning service knows the device", each: registering,
		needs: []string{"tls", "credentials"}, run: runRegistration},
	{name: "updates", each: updating, needs: []string{"tls", "credentials"}, run: runUpdates},
	{name: "name", about: "the name is known", each: servers, needs: []string{"registration"}, run: runName},
	{name: "port", about: "open", each: sites, needs: []string{"name"}, run: runPort},
	{name: "tls", about: "signed by a trusted authority, for this name", each: sites, needs: []string{"port"},
		run: runTLS},
	{name: "portal", about: "nobody answers for the service on port 80", each: servers, needs: []string{"name"},
		cause: true, run: runPortal},
	{name: "skew", about: "the clock agrees with the hub's", each: webSite, needs: []string{"name", "port"},
		run: runSkew},
	{name: "connect", about: "the service accepts the device", each: protocols,
		needs: []string{"name", "port", "tls", "credentials"}, run: runConnect},
	{name: "second device", about: "nobody took the device's id over meanwhile", each: sessions,
		needs: []string{"connect"}, run: runSecondDevice},
	{name: "idle", about: "no box on the way forgets a quiet connection", each: quiet, needs: []string{"connect"},
		run: runIdle},
}

// Run takes all steps and returns their rows. It ends early, without the remaining rows, when ctx
// does.
func (p *Probe) Run(ctx context.Context) []Row {
	p.roots, p.reached = map[string]string{}, map[string]time.Duration{}
	p.Target.Network.Proxy = nil
	if p.FindProxy != nil {
		p.Target.Network.Proxy = netproxy.Choose(p.FindProxy)
	}
	for _, c := range checks {
		subjects := []subject{{}}
		if c.each != nil {
			subjects = c.each(p)
		}
		for _, s := range subjects {
			if ctx.Err() != nil {
				return p.rows
			}
			p.take(ctx, c, s)
		}
	}
	return p.rows
}

// take takes one step, unless one before it failed. A failure after the end of ctx is the end's.
func (p *Probe) take(ctx context.Context, c check, s subject) {
	var rows []Row
	if failed := p.failed(c.needs, s); failed != "" {
		rows = notTried(failed)
	} else {
		rows = c.run(ctx, p, s)
	}
	for _, r := range rows {
		if ctx.Err() != nil && r.Mark != OK && r.Mark != Warn {
			r = Row{Check: r.Check, Mark: Skipped, Figure: interrupted.Figure, Hint: interrupted.Hint}
		}
		if r.Check == "" {
			r.Check = label(c.name, s.name)
		}
		if r.Hint == "" {
			r.Hint = c.about
		}
		if same := p.explained(r); len(same) > 0 {
			r.Hint += "; probably the cause of " + strings.Join(same, ", ") + " as well"
		}
		if p.Target.URL != nil {
			r.Hint = brokerWords.Replace(r.Hint)
		}
		r.cause = c.cause
		p.rows = append(p.rows, r)
		if p.OnRow != nil {
			p.OnRow(r)
		}
	}
}

func label(check, subject string) string {
	if subject == "" {
		return check
	}
	return check + " " + subject
}

// failed returns the row that one of the needs is about and that is not green. The row of a site
// counts for the transports that use it.
func (p *Probe) failed(needs []string, s subject) string {
	for _, need := range needs {
		for _, r := range p.rows {
			relevant := r.Check == need || r.Check == label(need, s.name) || s.site != nil &&
				(r.Check == label(need, s.site.name) || r.Check == label(need, s.site.server))
			if relevant && (r.Mark == Bad || r.Mark == Skipped) {
				return r.Check
			}
		}
	}
	return ""
}

// names reports whether a row names a cause for which MQTT 3.1.1 has no answer.
func (r Row) names() bool {
	return r.Mark == Bad && (r.Kind == transport.Quota || r.Kind == transport.Throttled)
}

// explained returns the names of the vague rows whose cause r is the first to name.
func (p *Probe) explained(r Row) (all []string) {
	if !r.names() {
		return nil
	}
	for _, other := range p.rows {
		switch {
		case other.names():
			return nil
		case other.vague:
			all = append(all, other.Check)
		}
	}
	return all
}

// Worst returns the row that is Bad and closest to the cause: a cause of others, or else the first,
// or the one that names what that one leaves open. It returns nil if there is none.
func Worst(rows []Row) *Row {
	var first, named *Row
	for i, r := range rows {
		switch {
		case r.Mark != Bad:
			continue
		case r.cause:
			return &rows[i]
		case first == nil:
			first = &rows[i]
		}
		if named == nil && r.names() {
			named = &rows[i]
		}
	}
	if first != nil && first.vague && named != nil {
		return named
	}
	return first
}

func protocols(p *Probe) (all []subject) {
	for _, protocol := range p.Target.Protocols() {
		all = append(all, subject{name: protocol.Name, site: p.siteOf(protocol), protocol: protocol})
	}
	return all
}

// sessions is the first transport that worked and that has a connection of its own.
func sessions(p *Probe) []subject {
	if p.Options.Hold <= 0 {
		return nil
	}
	var first *subject
	for _, s := range protocols(p) {
		if s.protocol.Name == "http" {
			continue
		}
		if first == nil {
			first = &s
		}
		for _, r := range p.rows {
			if r.Check == label("connect", s.name) && r.Mark == OK {
				return []subject{s}
			}
		}
	}
	if first == nil {
		return nil
	}
	return []subject{*first}
}

// quiet is MQTT over TCP, if a connection is to be left without traffic. Without it the subject has
// no protocol.
func quiet(p *Probe) []subject {
	if p.Options.Idle <= 0 {
		return nil
	}
	for _, s := range protocols(p) {
		if p.Target.IsQuiet(s.protocol) {
			return []subject{s}
		}
	}
	return []subject{{}}
}

// direct returns the dialer below proxies.
func (p *Probe) direct() netopt.DialFunc {
	if p.Target.Network.Dial != nil {
		return p.Target.Network.Dial
	}
	return netopt.Direct
}

// dial connects to a site as the transports do, through the proxy if there is one.
func (p *Probe) dial(ctx context.Context, s *site) (net.Conn, error) {
	dial := p.direct()
	if p.Target.Network.Proxy != nil {
		var err error
		if dial, err = p.Target.Network.Proxy(s.url(), dial); err != nil {
			return nil, err
		}
	}
	return dial(ctx, "tcp", s.address)
}

// limit bounds one step.
func (p *Probe) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, p.Options.Timeout)
}

// now returns the time by the device's clock.
func (p *Probe) now() time.Time {
	if c := p.Target.Creds; c != nil {
		return c.Time()
	}
	if id := p.Target.Identity; id != nil && id.Now != nil {
		return id.Now()
	}
	return time.Now()
}

// Environment is the FindProxy of the process's environment.
func Environment(u *url.URL) (*url.URL, error) {
	return http.ProxyFromEnvironment(&http.Request{URL: u})
}
