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
	html    string
	updates []string // properties, NAME=VALUE
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
	flags.BoolVar(&x.json, "json", false, "print the rows as JSON")
	flags.StringVar(&x.html, "html", "", "write the rows to this `FILE` as well, a page that can be mailed")
	flags.DurationVar(&x.options.Timeout, "timeout", 10*time.Second, "time limit of each step")
	flags.DurationVar(&x.options.Hold, "hold", 12*time.Second, "watch a connection so long for a second device; 0: do not")
	flags.DurationVar(&x.options.Idle, "idle", 0, "leave a connection quiet so long, then use it, up to 25m; 0: do not")
	flags.IntVar(&x.options.Burst, "burst", 20, "messages to send at once, up to 1000; 0: do not")
	flags.BoolVar(&x.options.NoMessages, "no-messages", false, "send no messages")
	flags.StringArrayVar(&x.updates, "update-property", nil, "`NAME=VALUE` that software updates are chosen by: asks the "+
		"provisioning service for one; may be repeated")
	x.target.Register(flags)
	return c
}

func (x *examining) check() (err error) {
	if x.options.UpdateProperties, err = updateProperties("-update-property", x.updates); err != nil {
		return err
	}
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
		p.OnRow = func(r doctor.Row) { printRow(x.tool.out, x.tool.palette(), r) }
	}
	page := &report{device: subject(to), at: time.Now(), summary: "the examination has not ended"}
	if err := x.keep(page); err != nil { // the file is refused before the steps, not after
		return err
	}
	rows := p.Run(ctx)
	page.rows, page.summary, page.device = rows, counts(rows), subject(to) // a registration names the hub
	if err := ctx.Err(); err != nil {
		err = fmt.Errorf("interrupted after %d steps: %w", len(rows), err)
		page.summary += "; interrupted"
		if x.json {
			err = errors.Join(err, x.summary(rows, exitFailed))
		}
		return errors.Join(err, x.keep(page))
	}
	status := exitOK
	if worst := doctor.Worst(rows); worst != nil {
		status = statusOfKind(worst.Kind)
	}
	if err := errors.Join(x.summary(rows, status), x.keep(page)); err != nil {
		return err
	}
	if status != exitOK {
		return &exitError{status, errSilent}
	}
	return nil
}

// keep writes the page of -html.
func (x *examining) keep(page *report) error {
	if x.html == "" {
		return nil
	}
	return page.write(x.html)
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

var markColors = map[doctor.Mark]color{doctor.OK: green, doctor.Warn: yellow, doctor.Bad: red, doctor.Skipped: faint}

// printRow prints a row: the hint follows the figure if all is well, else it has a line of its own.
func printRow(w io.Writer, p palette, r doctor.Row) {
	mark := p.paint(markColors[r.Mark], r.Mark.String()) + strings.Repeat(" ", markWidth-len(r.Mark.String()))
	line := fmt.Sprintf("%s  %-*s  %-*s", mark, checkWidth, r.Check, figureWidth, r.Figure)
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
	_, err := fmt.Fprintln(x.tool.out, counts(rows))
	return err
}

// counts says how many rows have which mark, and where to begin.
func counts(rows []doctor.Row) string {
	n := map[doctor.Mark]int{}
	for _, r := range rows {
		n[r.Mark]++
	}
	text := fmt.Sprintf("%d ok, %d warnings, %d bad, %d not tried", n[doctor.OK], n[doctor.Warn], n[doctor.Bad],
		n[doctor.Skipped])
	if worst := doctor.Worst(rows); worst != nil {
		text += "; begin with: " + worst.Check
	}
	return text
}
