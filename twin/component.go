package twin

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/transport"
)

// separator stands between component and command in the name of a direct method. It never occurs in
// the names of a model.
const separator = "*"

// Command returns the name of the direct method for the command called name of a component:
// "component*name", or just the name for the root, whose component is empty. Use it with
// HandleMethod.
func Command(component, name string) string {
	if component == "" {
		return name
	}
	return component + separator + name
}

// SplitCommand splits the name of a direct method. component is empty for a command of the root. A
// handler for all methods (Client.HandleMethod with the empty name) uses it to find the component.
func SplitCommand(method string) (component, name string) {
	if c, n, ok := strings.Cut(method, separator); ok {
		return c, n
	}
	return "", method
}

// SetComponent marks m as telemetry of a component, before m is handed to the client. The root is
// the empty component, which is also the default of a message. It only sets m.Component. The
// conventions also require a body that is a JSON object with the member names of the model, a
// ContentType of "application/json" and a ContentEncoding of "utf-8".
//
// The error, of Kind Invalid, means that the name is invalid; m is then unchanged. A program with
// constant names can set the field directly.
func SetComponent(m *transport.Message, component string) error {
	if component != "" {
		if err := checkName("component", component); err != nil {
			return &transport.Error{Kind: transport.Invalid, Op: transport.OpSend, Err: fmt.Errorf("message Component: %w", err)}
		}
	}
	m.Component = component
	return nil
}

// maxName is the maximum length of a name in a model.
const maxName = 512

// checkName returns an error if the name of a component or property is invalid by the rules of
// DTDL: letters, digits and underscores, a letter first, no underscore last.
func checkName(what, name string) error {
	ok := name != "" && len(name) <= maxName && isLetter(name[0]) && name[len(name)-1] != '_'
	for i := 0; ok && i < len(name); i++ {
		ok = isLetter(name[i]) || name[i] >= '0' && name[i] <= '9' || name[i] == '_'
	}
	if !ok {
		return fmt.Errorf("the %s's name %s is not valid; use letters, digits and, between them, "+
			"underscores, beginning with a letter", what, quote(name))
	}
	return nil
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// quote quotes a name, truncated if it is too long.
func quote(name string) string {
	if len(name) > 64 {
		return strconv.Quote(name[:64]) + "..."
	}
	return strconv.Quote(name)
}

// path names a property in an error.
func path(component, name string) string {
	if component == "" {
		return "property " + quote(name)
	}
	return "property " + quote(name) + " of component " + quote(component)
}
