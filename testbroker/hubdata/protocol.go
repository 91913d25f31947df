package hubdata

import (
	"fmt"
	"strings"
)

// Protocol is a set of device protocols.
type Protocol uint8

// The protocols.
const (
	MQTT Protocol = 1 << iota
	AMQP
	HTTP
)

var protocolNames = [...]string{"MQTT", "AMQP", "HTTP"}

// String names the protocols.
func (p Protocol) String() string {
	var names []string
	for i, name := range protocolNames {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	switch n := len(names); {
	case n == 0, p>>len(protocolNames) != 0:
		return fmt.Sprintf("Protocol(%d)", uint8(p))
	case n == 1:
		return names[0]
	default:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
}
