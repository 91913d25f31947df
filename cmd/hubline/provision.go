package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/internal/policies"
	"github.com/hubline-iot/hubline/provisioning"
)

// registering has the flags of hubline provision.
type registering struct {
	*connection
	payload, save string
}

func (t *tool) provisionCommand() *cobra.Command {
	r := &registering{}
	c := &cobra.Command{
		Use: "provision [flags]", Short: "register with the provisioning service", Long: helpText("provision"),
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return r.run(c.Context()) },
	}
	c.Flags().SortFlags = false
	c.Flags().StringVar(&r.payload, "payload", "", "`JSON` for the allocation function of the back end")
	c.Flags().StringVar(&r.save, "save", "", "new `FILE` for the connection string, which only its owner can read")
	r.connection = t.connection(c)
	r.target.Registering = true
	return c
}

func (r *registering) run(ctx context.Context) error {
	policy, err := policies.Parse(r.policy)
	if err != nil {
		return usage("-policy: %v", err)
	}
	var payload []byte
	if r.payload != "" {
		payload = []byte(r.payload)
	}
	if payload != nil && !json.Valid(payload) {
		return usage("-payload: not JSON; write {\"site\":\"roof\"}")
	}
	to, err := r.target.Resolve(r.tool.world)
	if err != nil {
		return err
	}
	if r.tool.adapt != nil {
		r.tool.adapt(to)
	}
	file, err := r.create()
	if err != nil {
		return err
	}
	assignment, err := r.register(ctx, to, &provisioning.Options{Payload: payload, Policy: policy})
	if err == nil {
		err = file.write(to)
	}
	if err != nil {
		return errors.Join(err, file.remove())
	}
	out := map[string]any{"hub": assignment.Hub, "deviceId": assignment.DeviceID, "substatus": assignment.Substatus}
	if len(assignment.Payload) > 0 {
		out["payload"] = json.RawMessage(assignment.Payload)
	}
	return r.tool.json(out)
}

// register registers, within the time of -connect-timeout.
func (r *registering) register(ctx context.Context, to *target.Target, o *provisioning.Options) (
	*provisioning.Assignment, error) {
	limit, cancel := limited(ctx, r.wait)
	defer cancel()
	var last error
	o.OnEvent = func(e provisioning.Event) {
		if e.Err != nil {
			last = e.Err
		}
		if e.Err != nil && e.Delay > 0 {
			r.say("again in %v: %v", e.Delay.Round(time.Millisecond), e.Err)
		}
	}
	assignment, err := to.Register(limit, o)
	if err != nil && limit.Err() != nil && ctx.Err() == nil && last != nil {
		err = fmt.Errorf("no answer within %v: %w", r.wait, last)
	}
	return assignment, err
}

// secretFile is the file of -save, which only its owner can read. Nil: there is none.
type secretFile struct{ file *os.File }

// create makes the file of -save before the registration, which counts as one even if nothing can
// be kept of it. An existing file is not overwritten.
func (r *registering) create() (*secretFile, error) {
	if r.save == "" {
		return nil, nil
	}
	file, err := os.OpenFile(r.save, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, usage("-save: %v", err)
	}
	return &secretFile{file}, nil
}

// write writes the connection string, and closes the file.
func (s *secretFile) write(to *target.Target) error {
	if s == nil {
		return nil
	}
	text, err := to.ConnectionString()
	if err != nil {
		return err
	}
	_, err = s.file.WriteString(text.Reveal() + "\n")
	return errors.Join(err, s.file.Close())
}

// remove closes and removes a file without a connection string.
func (s *secretFile) remove() error {
	if s == nil {
		return nil
	}
	_ = s.file.Close() // nothing was written, or the error of write says more
	return os.Remove(s.file.Name())
}
