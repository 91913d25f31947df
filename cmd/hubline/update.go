package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/update/agent"
)

// updating has the flags of commands that ask for software updates.
type updating struct {
	*connection
	properties []string
	installed  string
	rootKeys   string
	dir        string
	json       bool
}

func (t *tool) updateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "update", Short: "ask for software updates, and install them", Long: helpText("update"), Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return noCommand(c, nil) },
	}
	c.AddCommand(t.updateCheckCommand(), t.updateApplyCommand(), t.updateStatusCommand())
	return c
}

// updating adds the flags to a command's.
func (t *tool) updating(c *cobra.Command) *updating {
	u := &updating{}
	flags := c.Flags()
	flags.StringArrayVar(&u.properties, "property", nil, "property that updates are chosen by, `NAME=VALUE`, such as "+
		"manufacturer=Contoso; 1 to 5 of them")
	flags.StringVar(&u.installed, "installed", "", "the update that the device has, `PROVIDER/NAME/VERSION`; empty: "+
		"unknown, or the one that -dir remembers")
	flags.StringVar(&u.rootKeys, "root-keys", "", "`FILE` with a package of root keys to trust instead of Microsoft's, "+
		"such as an emulator's")
	flags.StringVar(&u.dir, "dir", "hubline-updates", "`DIR` for the state and the files of updates")
	u.connection = t.connection(c)
	return u
}

// maxUpdateProperties is how many the service takes.
const maxUpdateProperties = 5

// updateProperties returns the properties of a flag that updates are chosen by.
func updateProperties(flag string, given []string) (all agent.Properties, err error) {
	if len(given) > maxUpdateProperties {
		return nil, usage("%s: %d properties are too many; give up to %d", flag, len(given), maxUpdateProperties)
	}
	named, err := properties(flag, given)
	for _, p := range named {
		all = append(all, agent.Property{Name: p.Name, Value: p.Value})
	}
	return all, err
}

// parseUpdateID reads the value of -installed.
func parseUpdateID(text string) (id agent.UpdateID, err error) {
	parts := strings.Split(text, "/")
	switch {
	case text == "":
		return id, nil
	case len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "":
		return id, usage("-installed: %q is no update; write PROVIDER/NAME/VERSION", text)
	}
	return agent.UpdateID{Provider: parts[0], Name: parts[1], Version: parts[2]}, nil
}

func updateIDText(id agent.UpdateID) string { return id.Provider + "/" + id.Name + "/" + id.Version }
