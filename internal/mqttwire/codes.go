package mqttwire

import (
	"strconv"

	"github.com/hubline-iot/hubline/transport"
)

// ConnackError is a CONNECT that the hub refused: the cause of the *transport.Error of a failed
// dial, reachable with errors.As.
type ConnackError struct {
	// Code is the CONNACK's return code, 1 to 255.
	Code byte
}

// Error returns the code and its meaning.
func (e *ConnackError) Error() string {
	return "CONNACK " + strconv.Itoa(int(e.Code)) + " (" + ConnackMeaning(e.Code).Text + ")"
}

// Kind returns the Kind of the refusal.
func (e *ConnackError) Kind() transport.Kind { return ConnackMeaning(e.Code).Kind }

// SubackError is a subscription that the hub refused: the cause of the *transport.Error in the
// Reply to OpSubscribe, reachable with errors.As.
type SubackError struct {
	// Filter is the topic filter that was refused.
	Filter string
	// Code is its return code in the SUBACK.
	Code byte
}

// Error returns filter, code and meaning.
func (e *SubackError) Error() string {
	return "SUBACK " + strconv.Itoa(int(e.Code)) + " (" + SubackMeaning(e.Code).Text + ") for " + e.Filter
}

// Kind returns the Kind of the refusal.
func (e *SubackError) Kind() transport.Kind { return SubackMeaning(e.Code).Kind }

// Meaning is a row of a status code table: the Kind and text of a code of MQTT.
type Meaning struct {
	Kind transport.Kind
	Text string
}

var reserved = Meaning{transport.Protocol, "reserved code"}

// connackTable has a row for each CONNACK return code of MQTT 3.1.1 table 3.1. Code 0 is no error.
var connackTable = [...]Meaning{
	0: {transport.Unknown, "accepted"},
	1: {transport.Unsupported, "unacceptable protocol version"},
	2: {transport.Unauthorized, "identifier rejected"},
	3: {transport.Unavailable, "server unavailable"},
	4: {transport.Unauthorized, "bad user name or password"},
	5: {transport.Unauthorized, "not authorized"},
}

// ConnackMeaning returns the meaning of a CONNACK return code.
func ConnackMeaning(code byte) Meaning {
	if int(code) < len(connackTable) {
		return connackTable[code]
	}
	return reserved
}

// subackTable has a row for each SUBACK return code that grants a QoS, MQTT 3.1.1 section 3.9.3.
var subackTable = [...]Meaning{
	0: {transport.Unknown, "QoS 0 granted"},
	1: {transport.Unknown, "QoS 1 granted"},
	2: {transport.Unknown, "QoS 2 granted"},
}

// subackRefused is the row of code 0x80. The code has no reason, so it counts as temporary, as in
// the official Java SDK.
var subackRefused = Meaning{transport.Unavailable, "refused"}

// SubackMeaning returns the meaning of a SUBACK return code.
func SubackMeaning(code byte) Meaning {
	switch {
	case int(code) < len(subackTable):
		return subackTable[code]
	case code == 0x80:
		return subackRefused
	}
	return reserved
}

// Granted reports whether a SUBACK return code grants the subscription.
func Granted(code byte) bool { return int(code) < len(subackTable) }
