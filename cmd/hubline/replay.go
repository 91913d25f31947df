package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/transport"
)

// replaying has the flags of hubline replay.
type replaying struct {
	*delivery
	speed   float64
	device  string
	keepIDs bool
}

func (t *tool) replayCommand() *cobra.Command {
	r := &replaying{}
	c := &cobra.Command{
		Use: "replay [flags] FILE", Short: "send recorded messages with their timing", Long: helpText("replay"),
		Args: arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error { return r.run(c.Context(), args[0]) },
	}
	flags := c.Flags()
	flags.Float64Var(&r.speed, "speed", 1, "times as fast as recorded; 0: without the pauses")
	flags.StringVar(&r.device, "device", "", "messages of this `DEVICE` alone, of a file with several")
	flags.BoolVar(&r.keepIDs, "keep-ids", false, "send the recorded message ids; consumers may take the messages for "+
		"those that they have")
	r.delivery = t.delivery(c)
	return c
}

func (r *replaying) run(ctx context.Context, file string) error {
	if !(r.speed >= 0 && r.speed <= 1e6) {
		return usage("-speed: %v is out of range; give up to 1000000, or 0 for no pauses", r.speed)
	}
	r.failed.log = r.tool.log
	if file == "-" {
		return r.deliver(ctx, 0, func(ctx context.Context, to queue) error {
			return r.send(ctx, interruptible(ctx, r.tool.in), to)
		})
	}
	from, err := os.Open(file)
	if err != nil {
		return usage("replay: %v", err)
	}
	defer from.Close()
	total := 0 // a line that is wrong shows before the first message is sent
	if err := r.read(from, func(int, *recorded) error { total++; return nil }); err != nil {
		return err
	}
	if total == 0 {
		return usage("replay: %s has no message to send", file)
	}
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	return r.deliver(ctx, total, func(ctx context.Context, to queue) error { return r.send(ctx, from, to) })
}

// send puts each message of a recording into the queue when it is due. One that has no time, or one
// from before its predecessor, is due at once.
func (r *replaying) send(ctx context.Context, from io.Reader, to queue) error {
	begin := time.Now()
	var first time.Time
	return r.read(from, func(line int, m *recorded) error {
		if at := m.at(); !at.IsZero() && r.speed > 0 {
			if first.IsZero() {
				first = at
			}
			due := begin.Add(time.Duration(float64(at.Sub(first)) / r.speed))
			if err := pause(ctx, time.Until(due)); err != nil {
				return err
			}
		}
		what := fmt.Sprintf("line %d", line)
		err := to.put(ctx, m.message(r.keepIDs), what)
		if errors.Is(err, transport.TooLarge) || errors.Is(err, transport.Invalid) {
			r.failed.add(what, err) // of the message alone
			return nil
		}
		return err
	})
}

// maxRecorded bounds a line: the largest message, its body escaped or in base64, with properties.
const maxRecorded = 8 * transport.MaxMessageSize

// read calls each with the messages of a recording that are to be sent.
func (r *replaying) read(from io.Reader, each func(line int, m *recorded) error) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxRecorded)
	n := 1
	for ; lines.Scan(); n++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		m := new(recorded)
		if err := m.parse(text); err != nil {
			return usage("replay: line %d is no message: %v; give JSON lines, as hubline listen -json and testhub's page "+
				"write them", n, err)
		}
		if r.device != "" && r.device != m.Device {
			continue
		}
		if err := each(n, m); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, errNoEnd): // Ctrl-C ends the input
		return context.Canceled
	case errors.Is(err, bufio.ErrTooLong):
		return usage("replay: line %d has more than %d bytes, and no message is as large", n, maxRecorded)
	case err != nil:
		return usage("replay: %v", err)
	}
	return nil
}

// recorded is a line of a recording: one of listen -json, or of testhub, which has other names for
// some members.
type recorded struct {
	printed
	Device       string          `json:"device"`
	Received     time.Time       `json:"received"`
	MessageID    string          `json:"messageId"`
	CreationTime time.Time       `json:"creationTime"`
	Body         json.RawMessage `json:"body"` // a text, or JSON as people write it
	BodyBase64   string          `json:"bodyBase64"`
	Bytes        int             `json:"bytes"` // of the whole body, if this one is cut

	body []byte
}

func (m *recorded) parse(text []byte) error {
	if err := json.Unmarshal(text, m); err != nil {
		return err
	}
	if m.Bytes != 0 {
		return errors.New("its body is cut; record it whole")
	}
	if coded := cmp.Or(m.Base64, m.BodyBase64); coded != "" {
		var err error
		m.body, err = base64.StdEncoding.DecodeString(coded)
		return err
	}
	if m.Body == nil {
		return errors.New("there is no body")
	}
	if m.body = m.Body; m.Body[0] != '"' {
		return nil
	}
	var plain string
	err := json.Unmarshal(m.Body, &plain)
	m.body = []byte(plain)
	return err
}

// at returns when the message was sent, as far as the recording says.
func (m *recorded) at() time.Time {
	for _, t := range []time.Time{m.Time, m.Received, m.Created, m.CreationTime} {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

// message returns the message to send. Its expiry is left out, because it has passed.
func (m *recorded) message(keepID bool) *transport.Message {
	out := &transport.Message{
		CorrelationID: m.CorrelationID, ContentType: m.ContentType, ContentEncoding: m.ContentEncoding,
		Component: m.Component, Body: m.body, Created: m.Created,
	}
	if out.Created.IsZero() {
		out.Created = m.CreationTime
	}
	if keepID {
		out.ID = cmp.Or(m.ID, m.MessageID)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Properties)) {
		if !strings.HasPrefix(name, "iothub-") { // the hub's own, in messages that it sent
			out.Properties = append(out.Properties, transport.Property{Name: name, Value: m.Properties[name]})
		}
	}
	return out
}
