package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/hubline-iot/hubline/testbroker/event"
)

// pending is how many lines may wait for a slow output.
const pending = 4096

// A line is an event. Fields that its kind does not use are left out.
type line struct {
	Event      string    `json:"event"`
	Time       time.Time `json:"time"`
	Connection uint64    `json:"connection,omitempty"`
	Device     string    `json:"device,omitempty"`
	// Service is "dps", or the name of a hub besides the first; empty for the first hub.
	Service string `json:"service,omitempty"`
	// Refused is the address of a link, or the method and path of a request; empty when the whole
	// connection was refused.
	Refused string `json:"refused,omitempty"`
	// Code is the CONNACK code of refused. Status is that of an HTTP answer, of a twin request or of a
	// method.
	Code   byte   `json:"code,omitempty"`
	Status int    `json:"status,omitempty"`
	Fault  string `json:"fault,omitempty"`
	Error  string `json:"error,omitempty"`
	// Protocol and Bytes are those of a device's message or request. MessageID, Method and File
	// identify the subject.
	Protocol  string `json:"protocol,omitempty"`
	MessageID string `json:"messageId,omitempty"`
	Bytes     int    `json:"bytes,omitempty"`
	Method    string `json:"method,omitempty"`
	File      string `json:"file,omitempty"`
	// Hub is the hub to which the service has assigned a device.
	Hub string `json:"hub,omitempty"`
	// Update is the workflow that a device is offered, or the outcome that it reports.
	Update string `json:"update,omitempty"`
	// Detail is the operation of twin-requested, the part of twin-changed, the fate of
	// method-answered, or the state of a C2D message or upload. Version is that of the changed
	// properties.
	Detail  string `json:"detail,omitempty"`
	Version int64  `json:"version,omitempty"`
	// Lost is how many lines before this one were dropped.
	Lost int64 `json:"lost,omitempty"`

	text string // for humans, without the time
}

// A shownLine is a line with its text.
type shownLine struct {
	line
	Text string `json:"text"`
}

func (l line) shown() shownLine { return shownLine{l, l.text} }

// maxText bounds each text of a line, in bytes. Clients choose topics, paths and addresses, and
// lines wait for slow readers.
const maxText = 1 << 10

// bounded cuts a text that is too long.
func bounded(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "..."
}

func hubLine(e event.Event) line {
	l := line{
		Event: e.Kind.String(), Time: e.Time, Connection: e.Connection, Device: join(e.DeviceID, e.ModuleID), Code: e.Code,
		Status: e.Status,
		Bytes:  e.Bytes, Detail: e.Detail, Version: e.Version, text: bounded(e.String()),
	}
	name := bounded(e.Name)
	switch e.Kind {
	case event.FaultFired, event.FaultDeclared, event.FaultRemoved:
		l.Fault = e.Fault.String()
	case event.MessageStored, event.C2DChanged, event.InputChanged:
		l.MessageID = name
	case event.MethodCalled, event.MethodAnswered, event.MethodFailed:
		l.Method = name
	case event.Refused:
		l.Refused = name
	case event.RegistrationAnswered:
		l.Hub = name
	case event.UpdateAnswered:
		l.Update = name
	case event.UploadChanged:
		l.File = name
	default: // the other kinds need no more fields
	}
	if e.Protocol != 0 {
		l.Protocol = e.Protocol.String()
	}
	if e.Err != nil {
		l.Error = bounded(e.Err.Error())
	}
	return l
}

// join returns the name of a device or module.
func join(device, module string) string {
	if module == "" {
		return device
	}
	return device + "/" + module
}

// A printer writes lines in its own goroutine, so that a slow output does not delay the hub or its
// devices. Excess lines are dropped and counted.
type printer struct {
	w       io.Writer
	json    bool
	verbose bool   // all addresses, and the strings for back ends
	gone    func() // called when the output fails
	lines   chan line
	lost    atomic.Int64
	done    chan struct{} // closed when the goroutine has ended; nil before start
	err     error         // owned by the goroutine until done
}

func newPrinter(w io.Writer, json bool, gone func()) *printer {
	return &printer{w: w, json: json, gone: gone, lines: make(chan line, pending)}
}

// offer queues a line, or drops it if the queue is full.
func (p *printer) offer(l line) {
	select {
	case p.lines <- l:
	default:
		p.lost.Add(1)
	}
}

// start starts the goroutine. Lines offered before are printed first.
func (p *printer) start() {
	p.done = make(chan struct{})
	go func() {
		defer close(p.done)
		for l := range p.lines {
			if p.err != nil {
				continue
			}
			l.Lost = p.lost.Swap(0)
			if err := p.print(l); err != nil {
				p.err = outputError(err)
				p.gone()
			}
		}
	}()
}

func outputError(err error) error {
	return fmt.Errorf("output: %w; end testhub before what reads its output", err)
}

func (p *printer) print(l line) error {
	if p.json {
		return p.object(l)
	}
	text := l.Time.Format("15:04:05.000 ") + oneLine(l.text)
	if l.Lost > 0 {
		text += fmt.Sprintf(" (%d lines before this were lost: the output is too slow)", l.Lost)
	}
	_, err := io.WriteString(p.w, text+"\n")
	return err
}

func (p *printer) object(v any) error {
	raw, err := json.Marshal(v)
	if err == nil {
		_, err = p.w.Write(append(raw, '\n'))
	}
	return err
}

// end prints the queued lines and ends the goroutine. offer must not be called again. It gives up
// on a blocked output.
func (p *printer) end() error {
	close(p.lines)
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		return fmt.Errorf("output: it took no line for %v", farewell)
	}
	if p.err == nil && p.json {
		p.object(line{Event: "end", Time: time.Now()}) // no effect if the reader has gone
	}
	return p.err
}

// text returns the name and the addresses in one line.
func (r *readyHub) text() string {
	text := r.Host
	if r.Profile != "" {
		text += ", profile " + r.Profile
	}
	for _, name := range []string{"mqtt", "amqp", "https"} {
		if at, ok := r.Addresses[name]; ok {
			text += ", " + name + " " + at
		}
	}
	return text
}

// rows adds what devices, factories and back ends need, as variables to put before a command.
func (r *readyDPS) rows(row func(what, v string)) {
	row("dps", r.text())
	for _, n := range r.Notes {
		row("note", n)
	}
	for _, e := range r.Enrolled {
		what := "enrolled"
		if e.Group {
			what = "group"
		}
		var all []string
		for _, v := range r.settings(e) {
			all = append(all, v[0]+"="+v[1])
		}
		if e.Group {
			all = append([]string{e.ID + ":"}, all...)
		}
		row(what, strings.Join(all, " "))
	}
	if r.Updates {
		row("updates", r.updates)
	}
	row("backend", r.Service.ConnectionString)
}

// ready prints where the page is, who may connect, and a command that shows a message: the rest is
// for -v, and for parts that a flag has asked for. Keys are in no other output but the control
// API's.
func (p *printer) ready(r *readyObject) error {
	if p.json {
		if err := p.object(r); err != nil {
			return outputError(err)
		}
		return nil
	}
	var b strings.Builder
	row := func(what, v string) { fmt.Fprintf(&b, "%-8s %s\n", what, v) }
	if p.verbose || r.Control == "" {
		r.addressRows(row)
	}
	if r.ControlToken != "" {
		row("token", r.ControlToken)
	}
	if r.Control != "" {
		row("page", r.page())
	}
	for _, d := range r.Devices {
		row("device", d.ConnectionString)
		if d.BrokerURL != "" {
			row("broker", d.BrokerURL)
		}
		if d.Certificate != "" {
			row("cert", d.Certificate)
		}
	}
	if r.try != "" {
		row("try", r.try)
	}
	r.partRows(row)
	if p.verbose {
		row("service", r.Service.ConnectionString)
		r.Events.rows(row)
		r.Storage.rows(row)
	}
	b.WriteString("ready; Ctrl-C ends it, -v prints more\n")
	if _, err := io.WriteString(p.w, b.String()); err != nil {
		return outputError(err)
	}
	return nil
}

// addressRows adds the addresses of the hub.
func (r *readyObject) addressRows(row func(what, v string)) {
	row("host", r.Host)
	if r.Profile != "" {
		row("profile", r.Profile)
	}
	for _, name := range []string{"mqtt", "amqp", "https"} {
		if at, ok := r.Addresses[name]; ok {
			row(name, at)
		}
	}
	for _, n := range r.Notes {
		row("note", n)
	}
	row("ca", r.CA)
	if r.Control != "" {
		row("control", r.Control)
	}
}

// partRows adds the parts beside the hub.
func (r *readyObject) partRows(row func(what, v string)) {
	if r.Gateway != "" {
		row("gateway", r.Gateway)
	}
	if r.Workload != "" {
		row("workload", r.Workload)
	}
	for _, m := range r.Modules {
		row("module", m.Module+": "+m.assignments())
	}
	if r.DPS != nil {
		r.DPS.rows(row)
	}
	for _, h := range r.Hubs {
		row("linked", h.text())
		for _, n := range h.Notes {
			row("note", n)
		}
	}
}

// oneLine escapes characters that would break the line or control a terminal.
func oneLine(s string) string {
	if strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
