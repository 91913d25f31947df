package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/transport"
)

// sending has the flags of hubline send.
type sending struct {
	*delivery
	body, file            string
	lines                 bool
	count                 int
	rate                  float64
	id, correlation, user string
	contentType, encoding string
	topic, output         string
	properties            []string
	expires               time.Duration
	retain, atMostOnce    bool
	message               transport.Message // the fields that all messages share
	given                 bool              // -body
}

func (t *tool) sendCommand() *cobra.Command {
	s := &sending{}
	c := &cobra.Command{
		Use: "send [flags]", Short: "send messages, also from pipes", Long: helpText("send"), Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			s.given = c.Flags().Changed("body")
			return s.run(c.Context())
		},
	}
	flags := c.Flags()
	flags.StringVar(&s.body, "body", "", "`TEXT` of the message")
	flags.StringVar(&s.file, "file", "", "`FILE` with the body of the message")
	flags.BoolVar(&s.lines, "lines", false, "each line of the input is a message")
	flags.IntVar(&s.count, "count", 0, "how often the message of -body or -file is sent, or how many lines at most")
	flags.Float64Var(&s.rate, "rate", 0, "messages per second at most; 0: as fast as it goes")
	flags.StringArrayVar(&s.properties, "property", nil, "application property, `NAME=VALUE`; may be repeated")
	flags.StringVar(&s.contentType, "content-type", "", "`TYPE` of the body, such as application/json")
	flags.StringVar(&s.encoding, "content-encoding", "", "`ENCODING` of the body, such as utf-8")
	flags.StringVar(&s.id, "id", "", "message `ID`, for one message; empty: each gets one")
	flags.StringVar(&s.correlation, "correlation-id", "", "correlation `ID` of the messages")
	flags.StringVar(&s.user, "user-id", "", "`ID` of the user who made the messages")
	flags.StringVar(&s.topic, "topic", "",
		"`TOPIC` at a broker, instead of the one of its URL; or a custom topic of a hub of the profile mqttV5")
	flags.StringVar(&s.output, "output", "", "`OUTPUT` of a module")
	flags.BoolVar(&s.retain, "retain", false, "a broker keeps the message for later subscribers")
	flags.BoolVar(&s.atMostOnce, "at-most-once", false, "QoS 0: a message may be lost with the connection")
	flags.DurationVar(&s.expires, "expires", 0, "a message that waits longer is dropped; 0: never")
	s.delivery = t.delivery(c)
	return c
}

// check completes the shared fields.
func (s *sending) check() error {
	given := 0
	for _, is := range []bool{s.given, s.file != "", s.lines} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return usage("-body, -file and -lines: give one of them")
	case given == 0 && s.tool.inTerminal:
		return usage("nothing to send; give -body TEXT or -file FILE, or pipe something into it")
	case s.expires < 0:
		return usage("-expires: %v is negative; give a time such as 30s, or 0 for none", s.expires)
	case s.count < 0:
		return usage("-count: %d is negative; give 1 or more", s.count)
	case !(s.rate >= 0 && s.rate <= 1e6):
		return usage("-rate: %v is out of range; give up to 1000000 a second, or 0 for no limit", s.rate)
	case s.id != "" && (s.lines || s.count > 1):
		return usage("-id: messages with the same id count as one; leave it out")
	}
	s.message = transport.Message{
		ID: s.id, ContentType: s.contentType, ContentEncoding: s.encoding, Topic: s.topic, Output: s.output,
		CorrelationID: s.correlation, Retain: s.retain, AtMostOnce: s.atMostOnce,
	}
	if s.user != "" {
		s.message.System = &transport.SystemProperties{UserID: s.user}
	}
	var err error
	s.message.Properties, err = properties("-property", s.properties)
	return err
}

// properties returns the properties of a flag.
func properties(flag string, given []string) (all []transport.Property, err error) {
	for _, p := range given {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, usage("%s: %q has no name and value; write NAME=VALUE", flag, p)
		}
		all = append(all, transport.Property{Name: name, Value: value})
	}
	return all, nil
}

// source returns where the bodies come from.
func (s *sending) source(ctx context.Context) (source, error) {
	switch {
	case s.lines:
		s.failed.log = s.tool.log
		return newLines(s.tool.in, s.count, &s.failed), nil
	case s.given:
		return &repeated{body: []byte(s.body), left: max(1, s.count)}, nil
	case s.file == "":
		body, err := readBody(interruptible(ctx, s.tool.in))
		return &repeated{body: body, left: max(1, s.count)}, err
	}
	file, err := os.Open(s.file)
	if err != nil {
		return nil, usage("-file: %v", err)
	}
	body, err := readBody(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, usage("-file: %v", err)
	}
	return &repeated{body: body, left: max(1, s.count)}, nil
}

func (s *sending) run(ctx context.Context) error {
	if err := s.check(); err != nil {
		return err
	}
	from, err := s.source(ctx)
	if err != nil {
		return err
	}
	return s.deliver(ctx, from.total(), func(ctx context.Context, to queue) error { return s.produce(ctx, from, to) })
}

// produce puts all bodies into the queue, at the rate.
func (s *sending) produce(ctx context.Context, from source, to queue) error {
	begin := time.Now()
	for n := 0; ; n++ {
		if s.rate > 0 {
			due := begin.Add(time.Duration(float64(n) / s.rate * float64(time.Second)))
			if err := pause(ctx, time.Until(due)); err != nil {
				return err
			}
		}
		body, ok, err := from.next(ctx)
		if !ok || err != nil {
			return err
		}
		m := s.message
		m.Body = body
		if s.expires > 0 {
			m.Expires = time.Now().Add(s.expires)
		}
		err = to.put(ctx, &m, from.what())
		if errors.Is(err, transport.TooLarge) && s.lines {
			s.failed.add(from.what(), err) // with the properties; one line does not end a log's stream
		} else if err != nil {
			return err
		}
	}
}
