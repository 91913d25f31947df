package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/internal/policies"
)

// root returns the command with all others.
func (t *tool) root() *cobra.Command {
	// A version template of its own would link text/template, which makes the program 2 MB larger.
	root := &cobra.Command{
		Use: "hubline", Short: "a device in a shell", Long: helpText("hubline"),
		SilenceUsage: true, SilenceErrors: true, Version: version(),
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			c.SetOut(t.log)
			return errors.Join(c.Help(), &exitError{exitUsage, errSilent})
		},
	}
	root.SetIn(t.in)
	root.SetOut(t.out)
	root.SetErr(t.log)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(helpCommand(root))
	root.AddCommand(t.doctorCommand(), t.sendCommand(), t.replayCommand(), t.benchCommand(), t.listenCommand(),
		t.twinCommand(), t.methodCommand(), t.updateCommand(), t.uploadCommand(), t.provisionCommand(), t.simulateCommand(),
		t.policyCommand(), manCommand(root))
	for _, topic := range topics() {
		root.AddCommand(topic)
	}
	for _, c := range allCommands(root) {
		c.Flags().SortFlags = false
		t.completeFlags(c)
	}
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil { // cobra's prints help for a wrong shell, with status 0
		c.Use, c.Short = "completion [flags] SHELL", "print the completions for bash, zsh, fish or powershell"
		c.Args = arguments(1, 1)
		c.RunE = func(c *cobra.Command, args []string) error {
			return usage("completion: there is no shell %q; give bash, zsh, fish or powershell", args[0])
		}
	}
	return root
}

// arguments returns a check for the number of arguments that names the surplus or the lack.
func arguments(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usage("%s: an argument is missing; write %s", c.Name(), c.UseLine())
		case most >= 0 && len(args) > most && c.HasSubCommands():
			return noCommand(c, args)
		case most >= 0 && len(args) > most:
			return usage("%s: argument %q is one too many; write %s", c.Name(), args[most], c.UseLine())
		}
		return nil
	}
}

// topics are texts for hubline help TOPIC.
func topics() []*cobra.Command {
	var transports, names strings.Builder
	for _, p := range target.Transports {
		at := "hubs and brokers"
		switch {
		case p.Port == "":
			at = "brokers"
		case p.Schemes == "":
			at = "hubs, port " + p.Port
		default:
			at += ", port " + p.Port
		}
		fmt.Fprintf(&transports, "  %-8s %s (%s)\n", p.Name, p.Help, at)
	}
	for _, p := range policies.All {
		fmt.Fprintf(&names, "  %-21s %s\n", p.Name, p.Help)
		if len(p.Parameters) > 0 {
			fmt.Fprintf(&names, "  %-21s %s\n", "", strings.Join(p.Parameters, ", "))
		}
	}
	return []*cobra.Command{
		{Use: "credentials", Short: "where the identity comes from", Long: helpText("credentials")},
		{Use: "transports", Short: "names for -transport", Long: "Transports, for -transport NAME:\n\n" +
			transports.String() + "\nA broker's URL chooses WebSocket and TLS by its scheme: mqtts://, wss://, amqps://; " +
			"docs/brokers.md lists its parameters."},
		{Use: "policies", Short: "names for -policy", Long: "Retry policies, for -policy NAME or " +
			"NAME:PARAMETER=VALUE,...:\n\n" + names.String() +
			"\nAll have attempts=0 and elapsed=0: limits of the attempts, the first included, and of the " +
			"time; 0 is none.\nhubline policy NAME prints the delays."},
		{Use: "exit-status", Short: "what the exit status says", Long: "Exit statuses:\n\n" + statusText()},
	}
}
