package pnp

import (
	"fmt"

	"github.com/hubline-iot/hubline/transport"
)

// SetComponent marks m as telemetry of a component, before it is handed to the client; the
// component of the root is empty, as it is in a message that nobody marked. It sets m.Component and
// nothing else: the conventions want a body that is a JSON object, whose members are named as in
// the model, a ContentType of "application/json" and a ContentEncoding of "utf-8".
//
// The error, of Kind Invalid, is for a name that no model has; m is as it was then. A program whose
// names are constants can as well set the field.
func SetComponent(m *transport.Message, component string) error {
	if component != "" {
		if err := checkName("component", component); err != nil {
			return &transport.Error{Kind: transport.Invalid, Op: transport.OpSend, Err: fmt.Errorf("message Component: %w", err)}
		}
	}
	m.Component = component
	return nil
}
