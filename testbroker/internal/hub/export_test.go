package hub

import (
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// C2DTopic returns the topic of a C2D message.
func C2DTopic(device, module string, m hubdata.C2D) string {
	return c2dTopic(m, identity.Identity{Device: device, Module: module})
}

// InputTopic returns the topic of a message to an input.
func InputTopic(device, module, input string, m hubdata.C2D) string {
	return inputTopic(m, identity.Identity{Device: device, Module: module}, input)
}
