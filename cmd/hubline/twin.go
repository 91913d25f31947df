package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/device"
)

func (t *tool) twinCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "twin", Short: "read, report and watch the device's twin", Args: arguments(0, 0),
		SuggestFor: []string{"get", "patch", "watch"},
		RunE:       func(c *cobra.Command, _ []string) error { return noCommand(c, nil) },
	}
	c.AddCommand(t.twinGetCommand(), t.twinPatchCommand(), t.twinWatchCommand())
	return c
}

// within connects, runs f and closes.
func (x *connection) within(ctx context.Context, f func(s *session) error) error {
	s, err := x.prepare(ctx, &device.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := x.open(ctx, s); err != nil {
		return err
	}
	return f(s)
}

func (t *tool) twinGetCommand() *cobra.Command {
	var x *connection
	c := &cobra.Command{
		Use: "get [flags]", Short: "print the twin", Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return x.within(c.Context(), func(s *session) error {
				twin, err := s.GetTwin(s.ctx)
				if err != nil {
					return err
				}
				return t.json(map[string]json.RawMessage{"desired": twin.Desired, "reported": twin.Reported})
			})
		},
	}
	x = t.connection(c)
	return c
}

// json prints a value, indented.
func (t *tool) json(v any) error {
	encoder := json.NewEncoder(t.out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

func (t *tool) twinPatchCommand() *cobra.Command {
	var x *connection
	var version int64
	c := &cobra.Command{
		Use: "patch [flags] [JSON]", Short: "report properties", Args: arguments(0, 1), SuggestFor: []string{"report"},
		Long: "Reports properties: the JSON object is merged into those that the hub has, and null removes one. Without " +
			"an argument it is read from the input.",
		RunE: func(c *cobra.Command, args []string) error {
			patch, err := t.object(c.Context(), args)
			if err != nil {
				return err
			}
			return x.within(c.Context(), func(s *session) error {
				var now int64
				var err error
				if c.Flags().Changed("if-version") {
					now, err = s.PatchReportedIf(s.ctx, patch, version)
				} else {
					now, err = s.PatchReported(s.ctx, patch)
				}
				if err == nil {
					_, err = fmt.Fprintf(t.out, "version %d\n", now)
				}
				return err
			})
		},
	}
	c.Flags().Int64Var(&version, "if-version", 0, "report only if the reported properties have this version")
	x = t.connection(c)
	return c
}

// object returns the JSON object of an argument, or of the input.
func (t *tool) object(ctx context.Context, args []string) ([]byte, error) {
	var text []byte
	if len(args) > 0 {
		text = []byte(args[0])
	} else {
		if t.inTerminal {
			return nil, usage("no JSON; give it as the argument, or pipe it into the command")
		}
		var err error
		if text, err = readBody(interruptible(ctx, t.in)); err != nil {
			return nil, err
		}
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || object == nil {
		return nil, usage("not a JSON object%s; write {\"name\":value}, in quotation marks for the shell", where(text, err))
	}
	return bytes.TrimSpace(text), nil
}

// where says which byte of a text is no JSON; empty: the text is JSON.
func where(text []byte, err error) string {
	var syntax *json.SyntaxError
	if len(bytes.TrimSpace(text)) == 0 {
		return ": there is no text"
	}
	if !errors.As(err, &syntax) {
		return ""
	}
	before := text[:min(len(text), int(max(1, syntax.Offset)-1))]
	return fmt.Sprintf(": line %d, column %d: %v", bytes.Count(before, []byte("\n"))+1,
		len(before)-bytes.LastIndexByte(before, '\n'), syntax)
}

func (t *tool) twinWatchCommand() *cobra.Command {
	var x *connection
	var most int
	var since int64
	c := &cobra.Command{
		Use: "watch [flags]", Short: "print desired properties when they change", Args: arguments(0, 0),
		Long: "Prints the desired properties, and then each change: on a terminal as a line with the time, the version and " +
			"the properties, and otherwise as one JSON object in a line. There full is true for complete properties, and " +
			"false for a change that is to be merged into those before.",
		RunE: func(c *cobra.Command, _ []string) error { return x.watch(c.Context(), since, most) },
	}
	c.Flags().IntVar(&most, "count", 0, "end after so many lines; 0: never")
	c.Flags().Int64Var(&since, "since", 0, "print properties alone that are newer than this `VERSION`")
	x = t.connection(c)
	return c
}

// watch prints changes of the desired properties.
func (x *connection) watch(ctx context.Context, since int64, most int) error {
	if since < 0 || most < 0 {
		return usage("-since and -count: a number is negative; give 0 or more")
	}
	s, err := x.prepare(ctx, &device.Options{DesiredVersion: since})
	if err != nil {
		return err
	}
	defer s.Close()
	watching, end := context.WithCancelCause(s.ctx)
	defer end(nil)
	n := 0
	table := &columns{colors: []color{faint, cyan, yellow, 0}}
	err = s.HandleDesired(func(_ context.Context, d device.Desired) {
		if most > 0 && n >= most {
			return
		}
		if err := x.printDesired(table, d); err != nil {
			end(fmt.Errorf("output: %w", err))
		}
		if n++; n == most {
			end(errEnough)
		}
	})
	if err != nil {
		return err
	}
	if err := x.open(ctx, s); err != nil {
		return err
	}
	<-watching.Done()
	return s.ended(watching)
}

// printDesired prints desired properties.
func (x *connection) printDesired(table *columns, d device.Desired) error {
	if x.tool.outTerminal {
		kind := "change"
		if d.Full {
			kind = "all"
		}
		_, err := io.WriteString(x.tool.out, table.line(x.tool.palette(), time.Now().Format(time.TimeOnly),
			fmt.Sprintf("version %d", d.Version), kind, string(d.JSON)))
		return err
	}
	line, err := json.Marshal(struct {
		Version int64           `json:"version"`
		Full    bool            `json:"full"`
		Desired json.RawMessage `json:"desired"`
	}{d.Version, d.Full, d.JSON})
	if err == nil {
		_, err = fmt.Fprintf(x.tool.out, "%s\n", line)
	}
	return err
}

// errEnough ends a command that has done what it was to do.
var errEnough = errors.New("enough")

// ended returns the failure that ended a context; nil after Ctrl-C or errEnough.
func (s *session) ended(ctx context.Context) error {
	if err := s.cause(); err != nil {
		return err
	}
	if err := context.Cause(ctx); !errors.Is(err, errEnough) && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
