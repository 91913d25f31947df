package main

import (
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

	ended context.CancelFunc

	mu      sync.Mutex // guards the rest
	seen    int        // messages printed
	settled int        // verdicts handed over
	wrote   error
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
	flags.SortFlags = false
	flags.IntVar(&l.count, "count", 0, "end after so many messages; 0: never")
	flags.BoolVar(&l.json, "json", false, "print each message as a JSON object in a line")
	flags.BoolVar(&l.raw, "raw", false, "print the bodies alone, without line ends")
	flags.StringVar(&l.settle, "settle", "accept", "what to do with messages: accept, reject or release")
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
	session, err := l.prepare(ctx, &device.Options{Trace: &device.Trace{
		Settled: func(transport.Outcome) { l.settleOne() },
		// Verdicts that were not handed over are void, so their messages come again.
		SessionEnd: func(error, time.Duration) { l.again() },
	}})
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
	closeErr := session.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	return firstError(session.cause(), l.wrote, closeErr)
}

// take prints a message and returns the verdict.
func (l *listening) take(m *transport.Message, verdict error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count > 0 && l.seen >= l.count || l.wrote != nil {
		return errors.New("not wanted any more") // released: the next listener gets it
	}
	if err := l.print(l.tool.out, m); err != nil {
		l.wrote = fmt.Errorf("output: %w", err)
		l.ended()
		return l.wrote
	}
	l.seen++
	return verdict
}

// settleOne counts a verdict, and ends the command with the last.
func (l *listening) settleOne() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled++; l.settled == l.count {
		l.ended()
	}
}

func (l *listening) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = l.settled
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
	case !l.json:
		text := string(m.Body)
		if l.tool.outTerminal {
			text = visible(text)
		}
		_, err := fmt.Fprintln(w, text)
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

// visible escapes what would control a terminal: bodies come from others.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return '\ufffd'
		}
		return r
	}, text)
}
