package twin

import (
	"fmt"

	"github.com/hubline-iot/hubline/internal/fields"
	"github.com/hubline-iot/hubline/transport"
)

// FieldError is a value that a field does not take. Field is the name in JSON, or a path:
// "window.from"; Err says why. Check and Apply return it to refuse a property, a handler of a
// method to answer with 400; several in errors.Join.
type FieldError = fields.Error

// ErrUnknown is the cause of a FieldError about a name that the struct has no field for.
var ErrUnknown = fields.ErrUnknown

func invalid(err error) error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpTwinPatch, Err: err}
}

// broken returns the error for desired properties that violate the conventions.
func broken(format string, args ...any) error {
	return &transport.Error{Kind: transport.Protocol, Err: fmt.Errorf(format, args...)}
}
