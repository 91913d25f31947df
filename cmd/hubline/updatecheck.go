package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/update/agent"
)

func (t *tool) updateCheckCommand() *cobra.Command {
	var u *updating
	c := &cobra.Command{
		Use: "check [flags]", Short: "ask for an update, verify it and print it", Args: arguments(0, 0),
		Long: "Asks the service for an update, verifies it whole (root keys, signature, manifest) and prints it. Nothing " +
			"is downloaded, and no result is reported. The exit status is 0 with and without an update.",
		RunE: func(c *cobra.Command, _ []string) error { return u.check(c.Context()) },
	}
	u = t.updating(c)
	c.Flags().BoolVar(&u.json, "json", false, "print the offer as JSON")
	return c
}

// offered is an update as update check prints it.
type offered struct {
	Offered    bool         `json:"offered"`
	WorkflowID string       `json:"workflowId,omitempty"`
	Update     string       `json:"update,omitempty"`
	Steps      []updateStep `json:"steps,omitempty"`
	Canceled   string       `json:"canceled,omitempty"`
}

type updateStep struct {
	Handler string       `json:"handler"`
	Files   []updateFile `json:"files"`
}

type updateFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

func (u *updating) check(ctx context.Context) error {
	w, err := u.connect(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	limit, cancel := limited(ctx, u.wait)
	defer cancel()
	answer, err := retrypolicy.DoValue(limit, w.policy, func(ctx context.Context) (*agent.Answer, error) {
		return ask(ctx, w.service, &agent.Query{Installed: w.installed, Profile: 1, Properties: w.properties})
	})
	if err != nil {
		return firstError(w.cause(), err)
	}
	out := &offered{Canceled: answer.Cancel}
	if answer.Offer != nil {
		m, err := w.verify(limit, answer)
		if err != nil {
			return fmt.Errorf("workflow %s is offered, and is not to be trusted: %w", answer.Offer.WorkflowID, err)
		}
		out.fill(answer.Offer, m)
	}
	if u.json {
		return u.tool.json(out)
	}
	return out.print(u.tool.out, u.properties)
}

func (o *offered) fill(offer *agent.Offer, m *agent.Manifest) {
	o.Offered, o.WorkflowID, o.Update = true, offer.WorkflowID, updateIDText(m.ID)
	for _, s := range m.Steps {
		step := updateStep{Handler: cmp.Or(s.Handler, "a manifest of its own")}
		for _, id := range s.Files {
			for _, f := range m.Files {
				if f.ID == id {
					step.Files = append(step.Files, updateFile{f.Name, f.Size})
				}
			}
		}
		o.Steps = append(o.Steps, step)
	}
}

func (o *offered) print(w io.Writer, properties []string) error {
	if !o.Offered {
		_, err := fmt.Fprintf(w, "no update for %s\n", strings.Join(properties, " "))
		return err
	}
	_, err := fmt.Fprintf(w, "%s is offered, verified by a trusted key\nworkflow %s\n", visible(o.Update),
		visible(o.WorkflowID))
	for i, s := range o.Steps {
		var files []string
		for _, f := range s.Files {
			files = append(files, fmt.Sprintf("%s (%s)", f.Name, inBytes(f.Size)))
		}
		_, stepErr := fmt.Fprintf(w, "step %d  %s  %s\n", i+1, visible(s.Handler), visible(strings.Join(files, ", ")))
		err = firstError(err, stepErr)
	}
	return err
}
