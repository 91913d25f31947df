package hub

import (
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

func TokenFields(s string) (resource string, sig []byte, expires int64, err error) {
	t, err := ParseToken(s)
	return t.Resource, t.sig, t.expires, err
}

func TokenCovers(tok, host, device, module string) bool {
	t, err := ParseToken(tok)
	return err == nil && t.covers(host, Identity{device, module})
}

// C2DTopic returns the topic of a C2D message.
func C2DTopic(device, module string, m hubdata.C2D) string {
	return c2dTopic(m, Identity{device, module})
}

// InputTopic returns the topic of a message to an input.
func InputTopic(device, module, input string, m hubdata.C2D) string {
	return inputTopic(m, Identity{device, module}, input)
}

// ReadFaultMessage reads a message that requests a fault.
func ReadFaultMessage(m hubdata.Message) (fault.Message, bool) {
	_, f, ok := readFaultMessage(m)
	return f, ok
}
