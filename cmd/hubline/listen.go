package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// listening has the flags of hubline listen.
type listening struct {
	*connection
	count  int
	json   bool
	raw    bool
	settle string
	input  string
	since  string

	after time.Time // messages from before are not printed; zero: all are
	ended context.CancelFunc
	table columns

	mu    sync.Mutex // guards the rest
	seen  int        // messages printed
	old   int        // messages from before after
	wrote error
}

// verdicts are the values of -settle.
var verdicts = map[string]error{
	"accept": nil, "reject": device.ErrReject, "release": errors.New("released by -settle"),
}

func (t *tool) listenCommand() *cobra.Command {
	l := &listening{}
	c := &cobra.Command{
		Use: "listen [flags]", Short: "print messages for the device", Long: helpText("listen"), Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return l.run(c.Context()) },
	}
	flags := c.Flags()
	flags.IntVar(&l.count, "count", 0, "end after so many messages, also ones that come again; 0: never")
	flags.BoolVar(&l.json, "json", false, "print each message as a JSON object in a line")
	flags.BoolVar(&l.raw, "raw", false, "print the bodies alone, without line ends")
	flags.StringVar(&l.settle, "settle", "accept", "what to do with messages: accept, reject or release")
	flags.StringVar(&l.since, "since", "", "print messages alone that are newer than this `TIME`, such as 10m or "+
		"2026-11-28T07:00:00Z; older ones are settled, too")
	flags.StringVar(&l.input, "input", "", "`INPUT` of a module to listen to, instead of cloud-to-device messages")
	l.connection = t.connection(c)
	return c
}

func (l *listening) run(ctx context.Context) error {
	verdict, ok := verdicts[l.settle]
	switch {
	case !ok:
		return usage("-settle: %q is no verdict; give accept, reject or release", l.settle)
	case l.json && l.raw:
		return usage("-json and -raw: give one of them")
	case l.count < 0:
		return usage("-count: %d is negative; give 1 or more, or 0 for all", l.count)
	}
	var err error
	if l.after, err = parseSince(l.since, time.Now()); err != nil {
		return err
	}
	l.table.colors = []color{faint, cyan, yellow, 0}
	session, err := l.prepare(ctx, &device.Options{})
	if err != nil {
		return err
	}
	defer session.Close()
	listening, cancel := context.WithCancel(session.ctx)
	defer cancel()
	l.ended = cancel
	handle := func(_ context.Context, m *transport.Message) error { return l.take(m, verdict) }
	if l.input != "" {
		err = session.HandleInput(l.input, handle)
	} else {
		err = session.HandleMessages(handle)
	}
	if err != nil {
		return err
	}
	if err := l.open(ctx, session); err != nil {
		return err
	}
	<-listening.Done()
	closeErr := session.Close() // waits until the session has the last verdict
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.old > 0 {
		l.say("%d from before -since: settled and not printed", l.old)
	}
	return firstError(session.cause(), l.wrote, closeErr)
}

// parseSince returns the time of -since: a time, or how long before now. Zero: none is given.
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, usage("-since: %q is no time; give one such as 10m, or 2026-11-28T07:00:00Z", text)
	}
	return at, nil
}

// sentAt returns when a message was sent: the hub's time, which comes over AMQP and HTTPS, or else
// the sender's. Zero: it is not known.
func sentAt(m *transport.Message) time.Time {
	for _, p := range m.Properties {
		if at, err := time.Parse(time.RFC3339, p.Value); err == nil && p.Name == "iothub-enqueuedtime" {
			return at
		}
	}
	return m.Created
}

// take prints a message and returns the verdict. The last message of -count ends the command.
func (l *listening) take(m *transport.Message, verdict error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count > 0 && l.seen >= l.count || l.wrote != nil {
		return errors.New("not wanted any more") // released: the next listener gets it
	}
	if at := sentAt(m); !at.IsZero() && at.Before(l.after) {
		l.old++
		return verdict
	}
	if err := l.print(l.tool.out, m); err != nil {
		l.wrote = fmt.Errorf("output: %w", err)
		l.ended()
		return l.wrote
	}
	if l.seen++; l.seen == l.count {
		l.ended()
	}
	return verdict
}

// printed is a message as a JSON object. Base64 holds a body that is not text.
type printed struct {
	Time            time.Time         `json:"time"`
	ID              string            `json:"id,omitempty"`
	CorrelationID   string            `json:"correlationId,omitempty"`
	UserID          string            `json:"userId,omitempty"`
	FromDevice      string            `json:"fromDevice,omitempty"`
	FromModule      string            `json:"fromModule,omitempty"`
	Topic           string            `json:"topic,omitempty"`
	ResponseTopic   string            `json:"responseTopic,omitempty"`
	Input           string            `json:"input,omitempty"`
	Component       string            `json:"component,omitempty"`
	ContentType     string            `json:"contentType,omitempty"`
	ContentEncoding string            `json:"contentEncoding,omitempty"`
	Created         time.Time         `json:"created,omitzero"`
	Expires         time.Time         `json:"expires,omitzero"`
	Properties      map[string]string `json:"properties,omitempty"`
	Redelivered     bool              `json:"redelivered,omitempty"`
	Retained        bool              `json:"retained,omitempty"`
	Body            *string           `json:"body,omitempty"`
	Base64          string            `json:"base64,omitempty"`
}

func (l *listening) print(w io.Writer, m *transport.Message) error {
	switch {
	case l.raw:
		_, err := w.Write(m.Body)
		return err
	case !l.json && l.tool.outTerminal:
		_, err := io.WriteString(w, l.table.line(l.tool.palette(), time.Now().Format(time.TimeOnly),
			cmp.Or(m.Topic, m.Input, m.ID), propertyText(m.Properties), string(m.Body)))
		return err
	case !l.json:
		_, err := fmt.Fprintln(w, string(m.Body))
		return err
	}
	p := printed{
		Time: time.Now().UTC(), ID: m.ID, CorrelationID: m.CorrelationID, Topic: m.Topic, ResponseTopic: m.ResponseTopic,
		Input: m.Input, Component: m.Component, ContentType: m.ContentType, ContentEncoding: m.ContentEncoding,
		Created: m.Created, Expires: m.Expires, Redelivered: m.Redelivered, Retained: m.Retain,
	}
	if s := m.System; s != nil {
		p.UserID, p.FromDevice, p.FromModule = s.UserID, s.ConnectionDeviceID, s.ConnectionModuleID
	}
	for _, property := range m.Properties {
		if p.Properties == nil {
			p.Properties = map[string]string{}
		}
		p.Properties[property.Name] = property.Value
	}
	if utf8.Valid(m.Body) {
		text := string(m.Body)
		p.Body = &text
	} else {
		p.Base64 = base64.StdEncoding.EncodeToString(m.Body)
	}
	return json.NewEncoder(w).Encode(p)
}

// propertyText returns application properties as NAME=VALUE.
func propertyText(all []transport.Property) string {
	var texts []string
	for _, p := range all {
		texts = append(texts, p.Name+"="+p.Value)
	}
	return strings.Join(texts, " ")
}

// visible escapes what would control a terminal: bodies come from others.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return '\ufffd'
		}
		return r
	}, text)
}
