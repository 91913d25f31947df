package main

import (
	"cmp"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hubline-iot/hubline/internal/texts"
)

// below returns the path of a command without the program's name.
func below(c *cobra.Command) string {
	return strings.TrimPrefix(strings.TrimPrefix(c.CommandPath(), c.Root().Name()), " ")
}

// noCommand is the error of a group of commands that got another name than one of theirs, or none.
func noCommand(group *cobra.Command, args []string) error {
	help := strings.TrimSpace("hubline help " + below(group))
	if len(args) > 0 {
		return usage("there is no command %q; %s%s lists them", strings.TrimSpace(below(group)+" "+args[0]),
			suggestion(group, args[0]), help)
	}
	var names []string
	for _, c := range group.Commands() {
		if !c.Hidden {
			names = append(names, c.Name())
		}
	}
	return usage("%s: a command is missing; give one of %s; %s describes them", below(group), strings.Join(names, ", "),
		help)
}

// suggestion is a question about commands with a similar name; empty if there are none.
func suggestion(of *cobra.Command, name string) string {
	of.SuggestionsMinimumDistance = 2 // letters
	if similar := of.SuggestionsFor(name); len(similar) > 0 {
		return "did you mean " + strings.Join(similar, " or ") + "? "
	}
	return ""
}

// flagError explains a flag that a command does not have, or a value that the flag does not take. A
// group of commands has no flags: there the mistake is the command before the flag.
func flagError(c *cobra.Command, err error) error {
	if c.HasSubCommands() && (c.HasParent() || c.Flags().NArg() > 0) {
		return noCommand(c, c.Flags().Args())
	}
	help := strings.TrimSpace("hubline help " + below(c))
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		name := cmp.Or(unknown.GetSpecifiedShortnames(), unknown.GetSpecifiedName())
		return usage("unknown flag -%s; %s%s lists them all", name, texts.NearestFlag(name, names), help)
	case errors.As(err, &value):
		f := value.GetFlag()
		if form := valueForms[f.Value.Type()]; form != "" {
			return usage("-%s: %q is not %s", f.Name, value.GetValue(), form)
		}
		return usage("-%s: %q: %v", f.Name, value.GetValue(), value.Unwrap())
	}
	return usage("%s; %s lists the flags", strings.ReplaceAll(err.Error(), "--", "-"), help)
}

// valueForms say what a flag of a type takes.
var valueForms = map[string]string{
	"int":      "a whole number in range; give one such as 10",
	"int64":    "a whole number in range; give one such as 10",
	"uint64":   "a whole number in range; give one such as 10",
	"float64":  "a number in range; give one such as 0.5",
	"duration": "a time in range; give one such as 500ms, 30s or 10m",
	"bool":     "true or false",
}
