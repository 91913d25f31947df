package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/policies"
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
	if r.target.IDScope == "" && r.target.RegistrationID == "" {
		return usage("provision: nothing says who registers; give -id-scope and -registration-id")
	}
	to, err := r.target.Resolve(r.tool.world)
	if err != nil {
		return err
	}
	if r.tool.adapt != nil {
		r.tool.adapt(to)
	}
	limit, cancel := limited(ctx, r.wait)
	defer cancel()
	var last error
	assignment, err := to.Register(limit, &provisioning.Options{
		Payload: payload, Policy: policy,
		OnEvent: func(e provisioning.Event) {
			if e.Err != nil {
				last = e.Err
			}
			if e.Err != nil && e.Delay > 0 {
				r.say("again in %v: %v", e.Delay.Round(time.Millisecond), e.Err)
			}
		},
	})
	if err != nil && limit.Err() != nil && ctx.Err() == nil && last != nil {
		err = fmt.Errorf("no answer within %v: %w", r.wait, last)
	}
	if err != nil {
		return err
	}
	if r.save != "" {
		text, err := to.ConnectionString()
		if err == nil {
			err = writeSecret(r.save, text.Reveal()+"\n")
		}
		if err != nil {
			return err
		}
	}
	out := map[string]any{"hub": assignment.Hub, "deviceId": assignment.DeviceID, "substatus": assignment.Substatus}
	if len(assignment.Payload) > 0 {
		out["payload"] = json.RawMessage(assignment.Payload)
	}
	return r.tool.json(out)
}

// writeSecret makes a file that only its owner can read. An existing one is not overwritten.
func writeSecret(name, text string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usage("-save: %v", err)
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
