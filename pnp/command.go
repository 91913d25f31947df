package pnp

import "strings"

// separator stands between a component and its command in the name of a direct method. No name of a
// model has it.
const separator = "*"

// Command returns the name of the direct method that is the command called name of a component:
// "component*name", or only the name for the root, which has the empty name. It is what
// Client.HandleMethod is given.
func Command(component, name string) string {
	if component == "" {
		return name
	}
	return component + separator + name
}

// SplitCommand takes the name of a direct method apart. component is empty for a command of the
// root. A handler for all methods (HandleMethod with the empty name) finds with it the component.
func SplitCommand(method string) (component, name string) {
	if c, n, ok := strings.Cut(method, separator); ok {
		return c, n
	}
	return "", method
}
