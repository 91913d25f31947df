package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/doctor"
	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
)

// examining has the flags of hubline doctor.
type examining struct {
	tool    *tool
	target  target.Flags
	options doctor.Options
	json    bool
}

// idleMost bounds -idle: hubs close connections that are quiet for half an hour.
const idleMost = 25 * time.Minute

func (t *tool) doctorCommand() *cobra.Command {
	x := &examining{tool: t}
	c := &cobra.Command{
		Use: "doctor [flags]", Short: "find out why a device does not get through", Long: helpText("doctor"),
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return x.run(c.Context()) },
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.BoolVar(&x.json, "json", false, "print the rows as JSON")
	flags.DurationVar(&x.options.Timeout, "timeout", 10*time.Second, "time limit of each step")
	flags.DurationVar(&x.options.Hold, "hold", 12*time.Second, "watch a connection so long for a second device; 0: do not")
	flags.DurationVar(&x.options.Idle, "idle", 0, "leave a connection quiet so long, then use it, up to 25m; 0: do not")
	flags.IntVar(&x.options.Burst, "burst", 20, "messages to send at once, up to 1000; 0: do not")
	flags.BoolVar(&x.options.NoMessages, "no-messages", false, "send no messages")
	x.target.Register(flags)
	return c
}

func (x *examining) check() error {
	o := x.options
	switch {
	case o.Timeout < 100*time.Millisecond || o.Timeout > 5*time.Minute:
		return usage("-timeout: %v is out of range; give 100ms to 5m", o.Timeout)
	case o.Hold < 0 || o.Hold > time.Hour:
		return usage("-hold: %v is out of range; give up to 1h, or 0", o.Hold)
	case o.Idle < 0 || o.Idle > idleMost:
		return usage("-idle: %v is out of range; give up to %v, or 0", o.Idle, idleMost)
	case o.Burst < 0 || o.Burst > 1000:
		return usage("-burst: %d is out of range; give up to 1000, or 0", o.Burst)
	}
	return nil
}

func (x *examining) run(ctx context.Context) error {
	if err := x.check(); err != nil {
		return err
	}
	to, err := x.target.Resolve(x.tool.world)
	if err != nil {
		return err
	}
	p := &doctor.Probe{Target: to, Options: x.options, FindProxy: x.proxy(), Getenv: x.tool.world.Getenv}
	if x.tool.adapt != nil {
		x.tool.adapt(to)
		p.FindProxy, p.Lookup = noProxy, x.tool.lookup
	}
	if !x.json {
		p.OnRow = func(r doctor.Row) { printRow(x.tool.out, r) }
	}
	rows := p.Run(ctx)
	if err := ctx.Err(); err != nil {
		if x.json {
			err = errors.Join(err, x.summary(rows, exitFailed))
		}
		return fmt.Errorf("interrupted after %d steps: %w", len(rows), err)
	}
	status := exitOK
	if worst := doctor.Worst(rows); worst != nil {
		status = statusOfKind(worst.Kind)
	}
	if err := x.summary(rows, status); err != nil {
		return err
	}
	if status != exitOK {
		return &exitError{status, errSilent}
	}
	return nil
}

func (x *examining) proxy() func(*url.URL) (*url.URL, error) {
	if x.target.NoProxy {
		return nil
	}
	return doctor.Environment
}

func noProxy(*url.URL) (*url.URL, error) { return nil, nil }

// Widths of the table's columns.
const (
	markWidth, checkWidth, figureWidth = 4, 22, 44
)

// printRow prints a row: the hint follows the figure if all is well, else it has a line of its own.
func printRow(w io.Writer, r doctor.Row) {
	line := fmt.Sprintf("%-*s  %-*s  %-*s", markWidth, r.Mark, checkWidth, r.Check, figureWidth, r.Figure)
	switch r.Mark {
	case doctor.OK, doctor.Skipped:
		fmt.Fprintf(w, "%s  %s\n", line, r.Hint)
	default:
		fmt.Fprintf(w, "%s\n      %s\n", strings.TrimRight(line, " "), r.Hint)
	}
}

// summary prints the counts, or everything as JSON.
func (x *examining) summary(rows []doctor.Row, status int) error {
	if x.json {
		encoder := json.NewEncoder(x.tool.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(struct {
			Rows   []doctor.Row `json:"rows"`
			Status int          `json:"status"`
		}{rows, status})
	}
	counts := map[doctor.Mark]int{}
	for _, r := range rows {
		counts[r.Mark]++
	}
	text := fmt.Sprintf("%d ok, %d warnings, %d bad, %d not tried", counts[doctor.OK], counts[doctor.Warn],
		counts[doctor.Bad], counts[doctor.Skipped])
	if worst := doctor.Worst(rows); worst != nil {
		text += "; begin with: " + worst.Check
	}
	_, err := fmt.Fprintln(x.tool.out, text)
	return err
}
