package pnp

import "strings"

// separator stands between component and command in the name of a direct method. It never occurs in
// the names of a model.
const separator = "*"

// Command returns the name of the direct method for the command called name of a component:
// "component*name", or just the name for the root, whose component is empty. Use it with
// Client.HandleMethod.
func Command(component, name string) string {
	if component == "" {
		return name
	}
	return component + separator + name
}

// SplitCommand splits the name of a direct method. component is empty for a command of the root. A
// handler for all methods (HandleMethod with the empty name) uses it to find the component.
func SplitCommand(method string) (component, name string) {
	if c, n, ok := strings.Cut(method, separator); ok {
		return c, n
	}
	return "", method
}
