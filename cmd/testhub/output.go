package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/hubline-iot/hubline/testbroker"
)

// pending is how many lines may wait for an output that is slow.
const pending = 4096

// A line is something that happened. What a kind of event has nothing to say in is left out.
type line struct {
	Event      string    `json:"event"`
	Time       time.Time `json:"time"`
	Connection uint64    `json:"connection,omitempty"`
	Device     string    `json:"device,omitempty"`
	// Refused is the address of a link, or the method and path of a request; empty when the whole
	// connection was refused.
	Refused string `json:"refused,omitempty"`
	// Code is that of a CONNACK of refused, Status that of an answer over HTTP, of a twin or of a
	// method.
	Code   byte   `json:"code,omitempty"`
	Status int    `json:"status,omitempty"`
	Fault  string `json:"fault,omitempty"`
	Error  string `json:"error,omitempty"`
	// Protocol and Bytes are those of what a device sent; MessageID, Method and File say what it is
	// about.
	Protocol  string `json:"protocol,omitempty"`
	MessageID string `json:"messageId,omitempty"`
	Bytes     int    `json:"bytes,omitempty"`
	Method    string `json:"method,omitempty"`
	File      string `json:"file,omitempty"`
	// Detail is the operation of twin-requested, the part of twin-changed, the fate of
	// method-answered, the state of C2D message and upload; Version that of the properties that were
	// changed.
	Detail  string `json:"detail,omitempty"`
	Version int64  `json:"version,omitempty"`
	// Lost is how many lines before this one were not printed.
	Lost int64 `json:"lost,omitempty"`

	text string // for people, without the time
}

func hubLine(e testbroker.Event) line {
	l := line{
		Event: e.Kind.String(), Time: e.Time, Connection: e.Connection, Device: join(e.DeviceID, e.ModuleID), Code: e.Code,
		Status: e.Status,
		Bytes:  e.Bytes, Detail: e.Detail, Version: e.Version, text: e.String(),
	}
	switch e.Kind {
	case testbroker.FaultFired, testbroker.FaultDeclared, testbroker.FaultRemoved:
		l.Fault = e.Fault.String()
	case testbroker.MessageStored, testbroker.C2DChanged:
		l.MessageID = e.Name
	case testbroker.MethodCalled, testbroker.MethodAnswered, testbroker.MethodFailed:
		l.Method = e.Name
	case testbroker.Refused:
		l.Refused = e.Name
	case testbroker.UploadChanged:
		l.File = e.Name
	default: // nothing to do for the others
	}
	if e.Protocol != 0 {
		l.Protocol = e.Protocol.String()
	}
	if e.Err != nil {
		l.Error = e.Err.Error()
	}
	return l
}

// join is the name of a device or module.
func join(device, module string) string {
	if module == "" {
		return device
	}
	return device + "/" + module
}

// A printer writes lines on a goroutine of its own, so that a slow output holds up neither the hub
// nor its devices: the hub's lines are dropped then, and counted.
type printer struct {
	w     io.Writer
	json  bool
	gone  func() // called when the output fails
	lines chan line
	lost  atomic.Int64
	done  chan struct{} // closed when the goroutine has ended; nil before start
	err   error         // the goroutine's, until done
}

func newPrinter(w io.Writer, json bool, gone func()) *printer {
	return &printer{w: w, json: json, gone: gone, lines: make(chan line, pending)}
}

// offer prints a line unless too many wait.
func (p *printer) offer(l line) {
	select {
	case p.lines <- l:
	default:
		p.lost.Add(1)
	}
}

// start begins to print. What was offered before comes first.
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

// end prints what waits and ends the goroutine. Nobody may call offer any more. It gives up on an
// output that takes nothing.
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
		p.object(line{Event: "end", Time: time.Now()}) // who has gone does not hear it
	}
	return p.err
}

// ready prints where the hub is. The connection strings are here and nowhere else.
func (p *printer) ready(r *readyObject) error {
	if p.json {
		if err := p.object(r); err != nil {
			return outputError(err)
		}
		return nil
	}
	var b strings.Builder
	row := func(what, v string) { fmt.Fprintf(&b, "%-8s %s\n", what, v) }
	row("host", r.Host)
	for _, name := range []string{"mqtt", "amqp", "https"} {
		if at, ok := r.Addresses[name]; ok {
			row(name, at)
		}
	}
	row("ca", r.CA)
	if r.Control != "" {
		row("control", r.Control)
	}
	for _, d := range r.Devices {
		row("device", d.ConnectionString)
	}
	row("service", r.Service.ConnectionString)
	b.WriteString("ready; Ctrl-C ends it\n")
	if _, err := io.WriteString(p.w, b.String()); err != nil {
		return outputError(err)
	}
	return nil
}

// oneLine escapes what would make more than one line of a text, or do something to a terminal.
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
