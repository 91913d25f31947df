package pnp

import (
	"fmt"
	"strconv"

	"github.com/hubline-iot/hubline/transport"
)

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

func invalid(format string, args ...any) error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpTwinPatch, Err: fmt.Errorf(format, args...)}
}

// broken returns the error for desired properties that violate the conventions.
func broken(format string, args ...any) error {
	return &transport.Error{Kind: transport.Protocol, Err: fmt.Errorf(format, args...)}
}
