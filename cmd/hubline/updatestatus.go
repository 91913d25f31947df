package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/host"
)

func (t *tool) updateStatusCommand() *cobra.Command {
	u := &updating{connection: &connection{tool: t}}
	c := &cobra.Command{
		Use: "status [flags]", Short: "print how updates stand, from the state in -dir", Args: arguments(0, 0),
		RunE: func(*cobra.Command, []string) error { return u.status() },
	}
	c.Flags().StringVar(&u.dir, "dir", "hubline-updates", "`DIR` of update apply")
	c.Flags().BoolVar(&u.json, "json", false, "print it as JSON")
	return c
}

// updateStatus is how updates stand.
type updateStatus struct {
	Phase      string `json:"phase"`
	WorkflowID string `json:"workflowId,omitempty"`
	Update     string `json:"update,omitempty"`
	Step       int    `json:"step,omitempty"`
	Steps      int    `json:"steps,omitempty"`
	Outcome    string `json:"outcome,omitempty"`
	Details    string `json:"details,omitempty"`
	Unsent     int    `json:"unsentReports"`
}

func statusFrom(s agent.Status) updateStatus {
	out := updateStatus{Phase: s.Phase.String(), WorkflowID: s.WorkflowID, Unsent: s.Unsent, Details: s.Latest.Details}
	if s.Update != (agent.UpdateID{}) {
		out.Update = updateIDText(s.Update)
	}
	if s.Phase != agent.PhaseIdle {
		out.Step, out.Steps = s.Step+1, s.Steps
	}
	if s.Latest.Outcome != agent.OutcomeInProgress {
		out.Outcome = s.Latest.Outcome.String()
	}
	return out
}

func (u *updating) status() error {
	if _, err := os.Stat(filepath.Join(u.dir, "state")); err != nil {
		return usage("-dir: %s has no state of updates; hubline update apply makes one", u.dir)
	}
	a, err := agent.New(&agent.Options{
		Service: nowhere{}, Fetch: host.NewFetcher(nil), Store: host.NewStore(filepath.Join(u.dir, "state")),
		Handlers:   map[string]agent.Handler{"": &folderHandler{}},
		Verify:     func([]byte, string) error { return errNowhere },
		Properties: agent.Properties{{Name: "none", Value: "none"}},
	})
	if err != nil {
		return err
	}
	s := statusFrom(a.Status())
	if u.json {
		return u.tool.json(s)
	}
	for _, row := range [][2]string{{"phase", s.Phase}, {"update", s.Update}, {"workflow", s.WorkflowID},
		{"result", strings.TrimSpace(s.Outcome + "  " + s.Details)}, {"reports", fmt.Sprintf("%d to send", s.Unsent)}} {
		if row[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(u.tool.out, "%-9s %s\n", row[0], visible(row[1])); err != nil {
			return err
		}
	}
	return nil
}

// nowhere is the service of an agent that is only asked how it stands.
type nowhere struct{}

var errNowhere = errors.New("there is no service")

func (nowhere) Check(context.Context, *agent.Query) (*agent.Answer, error) { return nil, errNowhere }
func (nowhere) Report(context.Context, *agent.Report) error                { return errNowhere }
