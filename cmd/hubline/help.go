package main

import (
	"embed"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

//go:embed help/*.txt
var helpTexts embed.FS

// helpText returns the text of a command or a topic.
func helpText(name string) string {
	text, err := helpTexts.ReadFile("help/" + name + ".txt")
	if err != nil {
		panic(err) // a name in this program that no file has
	}
	return strings.TrimSpace(string(text))
}

// helpCommand returns hubline help, which refuses names that nothing has.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND or TOPIC]", Short: "explain a command or a topic",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range root.Commands() {
				if !c.Hidden {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usage("there is no command and no topic %q; %shubline help lists them", strings.Join(args, " "),
					suggestion(c, args[0]))
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	}
}

// version returns the version of the module that the program was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of an unknown version"
	}
	return info.Main.Version + " " + info.GoVersion
}
