package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// simulating has the flags of hubline simulate.
type simulating struct {
	*connection
	count    int
	interval time.Duration
	seed     uint64
	bare     bool

	body, contentType, settle, answer, report string
	properties                                []string
	status                                    int
}

func (t *tool) simulateCommand() *cobra.Command {
	s := &simulating{}
	c := &cobra.Command{
		Use: "simulate [flags]", Short: "be a device with a thermometer", Long: helpText("simulate"),
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c.Context()) },
	}
	flags := c.Flags()
	flags.IntVar(&s.count, "count", 0, "end after so many messages; 0: never")
	flags.DurationVar(&s.interval, "interval", 3*time.Second, "time between messages")
	flags.Uint64Var(&s.seed, "seed", 1, "seed of the readings; the same seed gives the same readings")
	flags.BoolVar(&s.bare, "telemetry-only", false, "neither receive messages and methods nor report properties")
	flags.StringVar(&s.body, "body", "", "`TEXT` of the messages, instead of readings")
	flags.StringVar(&s.contentType, "content-type", "", "`TYPE` of the body; empty: that of readings")
	flags.StringArrayVar(&s.properties, "property", nil, "application property, `NAME=VALUE`; may be repeated")
	flags.StringVar(&s.settle, "settle", "accept", "what to do with messages: accept, reject or release")
	flags.IntVar(&s.status, "method-status", 200, "status of the answers to direct methods")
	flags.StringVar(&s.answer, "method-answer", `{"simulated":true}`, "`JSON` of the answers to direct methods")
	flags.StringVar(&s.report, "report", "", "`JSON` object with properties to report at the start")
	s.connection = t.connection(c)
	return c
}

// check returns the fields that all messages share.
func (s *simulating) check() (m transport.Message, err error) {
	_, known := verdicts[s.settle]
	var report map[string]json.RawMessage
	switch {
	case s.count < 0 || s.interval < time.Millisecond || s.interval > 24*time.Hour:
		return m, usage("-count and -interval: give a count of 0 or more, and an interval from 1ms to 24h")
	case !known:
		return m, usage("-settle: %q is no verdict; give accept, reject or release", s.settle)
	case !json.Valid([]byte(s.answer)) || len(s.answer) > maxAnswer:
		return m, usage("-method-answer: not JSON, or longer than %d bytes; write {\"ok\":true}", maxAnswer)
	case s.report != "" && (json.Unmarshal([]byte(s.report), &report) != nil || report == nil):
		return m, usage("-report: not a JSON object; write {\"name\":value}")
	case s.report != "" && s.bare:
		return m, usage("-report: -telemetry-only reports nothing; give one of them")
	}
	m.Properties, err = properties("-property", s.properties)
	return m, err
}

func (s *simulating) run(ctx context.Context) error {
	message, err := s.check()
	if err != nil {
		return err
	}
	session, err := s.prepare(ctx, &device.Options{})
	if err != nil {
		return err
	}
	defer session.Close()
	if !s.bare {
		if err := s.handle(session); err != nil {
			return err
		}
	}
	if s.report != "" && !session.twin {
		return usage("-report: this transport or service has no twin; use MQTT or AMQP to a hub")
	}
	if err := s.open(ctx, session); err != nil {
		return err
	}
	if s.report != "" {
		if _, err := session.PatchReported(session.ctx, []byte(s.report)); err != nil {
			return firstError(session.cause(), err)
		}
	}
	if message.ContentType = s.contentType; message.ContentType == "" && s.body == "" && session.hub {
		message.ContentType = "application/json" // hubs route by bodies that are marked as JSON
	}
	failed := &unsent{log: s.tool.log}
	results := newMemoryQueue(session.Client, failed)
	sendErr := s.send(session, results, message)
	flush, cancel := limited(session.alive, time.Minute)
	defer cancel()
	err = results.flush(flush)
	s.say("%s", results.summary())
	if errors.Is(sendErr, context.Canceled) {
		sendErr = nil // Ctrl-C, or the client gave up
	}
	return firstError(session.cause(), sendErr, err, failed.err())
}

// handle makes the device answer, over transports that carry more than messages.
func (s *simulating) handle(session *session) error {
	var err error
	if session.messages {
		err = session.HandleMessages(func(_ context.Context, m *transport.Message) error {
			s.say("message: %s", visible(string(m.Body)))
			return verdicts[s.settle]
		})
	}
	if err != nil || !session.twin {
		return err
	}
	err = session.HandleDesired(func(ctx context.Context, d device.Desired) {
		s.say("desired: %s", visible(string(d.JSON)))
		if patch := echo(d.JSON); len(patch) > 2 {
			if _, err := session.PatchReported(ctx, patch); err != nil {
				s.say("reported: %v", err)
			}
		}
	})
	if err != nil {
		return err
	}
	return session.HandleMethod("", func(_ context.Context, m *device.MethodCall) (int, []byte) {
		s.say("method %s: %s", visible(m.Name), visible(string(m.Body)))
		return s.status, []byte(s.answer)
	})
}

// echo returns the desired properties without the hub's own.
func echo(desired []byte) []byte {
	var all map[string]json.RawMessage
	if json.Unmarshal(desired, &all) != nil {
		return nil
	}
	delete(all, "$version")
	delete(all, "$metadata")
	patch, err := json.Marshal(all)
	if err != nil {
		return nil
	}
	return patch
}

// send sends messages until there are enough of them.
func (s *simulating) send(session *session, to queue, message transport.Message) error {
	draw := rand.New(rand.NewPCG(s.seed, 0))
	celsius, humidity := 21.0, 55.0
	for n := 1; s.count == 0 || n <= s.count; n++ {
		celsius += draw.Float64() - 0.5
		humidity = min(100, max(0, humidity+2*(draw.Float64()-0.5)))
		m := message
		if m.Body = []byte(s.body); s.body == "" {
			m.Body = fmt.Appendf(nil, `{"n":%d,"celsius":%.1f,"humidity":%.1f}`, n, celsius, humidity)
		}
		if err := to.put(session.ctx, &m, fmt.Sprintf("message %d", n)); err != nil {
			return err
		}
		if n == s.count {
			break
		}
		if err := pause(session.ctx, s.interval); err != nil {
			return err
		}
	}
	return nil
}
