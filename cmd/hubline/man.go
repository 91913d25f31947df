package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Sections of the manual: commands, and topics.
const (
	manCommands, manTopics = "1", "7"
)

// manCommand returns hubline man, which writes the help of all commands and topics as pages of the
// manual.
func manCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "write the manual's pages into a folder", Args: arguments(1, 1),
		Long: "Writes a page for each command and topic into the folders man1 and man7 of DIR.\n\n" +
			"  hubline man ~/.local/share/man\n  man hubline-send",
		RunE: func(_ *cobra.Command, args []string) error {
			for _, c := range allCommands(root) {
				name, section := manName(c)
				folder := filepath.Join(args[0], "man"+section)
				err := os.MkdirAll(folder, 0o755)
				if err == nil {
					err = os.WriteFile(filepath.Join(folder, name+"."+section), []byte(manPage(c)), 0o644)
				}
				if err != nil {
					return usage("%v", err)
				}
			}
			return nil
		},
	}
}

// allCommands returns a command and those below it.
func allCommands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, child := range c.Commands() {
		all = append(all, allCommands(child)...)
	}
	return all
}

// manName returns the name of a command's page, and its section.
func manName(c *cobra.Command) (name, section string) {
	section = manCommands
	if !c.Runnable() {
		section = manTopics
	}
	return strings.ReplaceAll(c.CommandPath(), " ", "-"), section
}

func manPage(c *cobra.Command) string {
	var b strings.Builder
	name, section := manName(c)
	fmt.Fprintf(&b, ".TH %s %s \"\" %s\n", roff(strings.ToUpper(name)), section, `"hubline `+roff(version())+`"`)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(c.Short))
	if section == manCommands {
		fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(c.UseLine()))
	}
	b.WriteString(".SH DESCRIPTION\n")
	text := c.Long
	if text == "" {
		text = c.Short
	}
	manText(&b, text)
	if c.HasAvailableLocalFlags() {
		b.WriteString(".SH OPTIONS\n")
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { manFlag(&b, f) })
	}
	b.WriteString(".SH SEE ALSO\n")
	var others []string
	for _, other := range append(c.Commands(), c.Root().Commands()...) {
		if otherName, otherSection := manName(other); other != c {
			others = append(others, fmt.Sprintf(".BR %s (%s)", roff(otherName), otherSection))
		}
	}
	b.WriteString(strings.Join(others, " ,\n") + "\n")
	return b.String()
}

func manFlag(b *strings.Builder, f *pflag.Flag) {
	value, text := pflag.UnquoteUsage(f)
	fmt.Fprintf(b, ".TP\n.B %s \\fI%s\\fP\n%s", roff("-"+f.Name), roff(value), roff(text))
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" {
		fmt.Fprintf(b, " (default %s)", roff(f.DefValue))
	}
	b.WriteByte('\n')
}

// manText writes paragraphs, and lines that are indented as they are.
func manText(b *strings.Builder, text string) {
	example := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		indented := strings.HasPrefix(line, " ")
		switch {
		case line == "":
			continue
		case indented && !example:
			b.WriteString(".PP\n.nf\n")
		case !indented && example:
			b.WriteString(".fi\n.PP\n")
		case !indented:
			b.WriteString(".PP\n")
		}
		example = indented
		b.WriteString(roff(line) + "\n")
	}
	if example {
		b.WriteString(".fi\n")
	}
}

var roffEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`)

// roff escapes a text: a line must not begin like a request.
func roff(text string) string {
	text = roffEscapes.Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
