package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// doubleDashes lets flags begin with one dash, as those of Hubline's other commands do: -lines is
// --lines. It changes neither values nor what follows "--".
func doubleDashes(root *cobra.Command, args []string) []string {
	flags := map[string]*pflag.Flag{}
	var collect func(*cobra.Command)
	collect = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = f })
		for _, child := range c.Commands() {
			collect(child)
		}
	}
	collect(root)
	changed := append([]string{}, args...)
	value := false // the argument is the value of the flag before it
	for i, arg := range changed {
		if value {
			value = false
			continue
		}
		if arg == "--" {
			break
		}
		name, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		f := flags[name]
		if !strings.HasPrefix(arg, "-") || f == nil && len(name) < 2 {
			continue
		}
		if !strings.HasPrefix(arg, "--") {
			changed[i] = "-" + arg
		}
		value = f != nil && !hasValue && f.NoOptDefVal == ""
	}
	return changed
}

// hasFlag reports whether a flag is among the arguments.
func hasFlag(args []string, name string) bool {
	for _, arg := range args {
		if arg == "-"+name || arg == "--"+name {
			return true
		}
	}
	return false
}
