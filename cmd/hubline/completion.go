package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/internal/policies"
)

// completions are the flags whose values a shell completes.
var completions = map[string][]string{
	"transport": target.Names(), "policy": policies.Names(), "dialect": target.DialectNames(),
	"settle": {"accept", "reject", "release"},
}

// completeFlags lets a shell complete the values of a command's flags.
func (t *tool) completeFlags(c *cobra.Command) {
	if c.Flags().Lookup("testhub") != nil {
		_ = c.RegisterFlagCompletionFunc("testhub", func(*cobra.Command, []string, string) ([]string,
			cobra.ShellCompDirective) {
			return target.TesthubDevices(t.world.Getenv), cobra.ShellCompDirectiveNoFileComp
		})
	}
	for name, values := range completions {
		if c.Flags().Lookup(name) != nil {
			// The error is that of a flag which has a function.
			_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// oneDash writes completions of a flag that was begun with one dash, which cobra writes with two: a
// shell takes none that does not begin as the word does.
type oneDash struct{ w io.Writer }

func (o oneDash) Write(p []byte) (int, error) {
	text := strings.ReplaceAll("\n"+string(p), "\n--", "\n-")
	_, err := io.WriteString(o.w, text[1:])
	return len(p), err
}

// completesOneDash reports whether the arguments ask for completions of a flag with one dash.
func completesOneDash(args []string) bool {
	if len(args) == 0 || !strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return false
	}
	last := args[len(args)-1]
	return strings.HasPrefix(last, "-") && !strings.HasPrefix(last, "--")
}
