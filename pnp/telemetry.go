package pnp

import (
	"fmt"

	"github.com/hubline-iot/hubline/transport"
)

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
