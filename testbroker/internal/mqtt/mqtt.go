// Package mqtt is the server's side of MQTT 3.1.1 and MQTT 5 as a protocol, without knowledge of
// hubs: packets, properties, reason codes and topic filters. It is strict: a packet that the
// standard forbids is an [Error].
package mqtt

import "fmt"

// Versions of the protocol, as levels in CONNECT.
const (
	V311 = 4
	V5   = 5
)

// Packet types [MQTT-2.1.2].
const (
	Connect     = 1
	Connack     = 2
	Publish     = 3
	Puback      = 4
	Pubrec      = 5
	Pubrel      = 6
	Pubcomp     = 7
	Subscribe   = 8
	Suback      = 9
	Unsubscribe = 10
	Unsuback    = 11
	Pingreq     = 12
	Pingresp    = 13
	Disconnect  = 14
	Auth        = 15
)

// Reason codes of MQTT 5.
const (
	Success               = 0x00
	WithWill              = 0x04 // DISCONNECT that publishes the will
	NoSubscribers         = 0x10
	NoSubscription        = 0x11
	ContinueAuth          = 0x18
	ReAuthenticate        = 0x19
	Unspecified           = 0x80
	Malformed             = 0x81
	ProtocolError         = 0x82
	UnsupportedVersion    = 0x84
	ClientIDNotValid      = 0x85
	BadCredentials        = 0x86
	NotAuthorized         = 0x87
	ServerUnavailable     = 0x88
	ServerShuttingDown    = 0x8b
	BadAuthMethod         = 0x8c
	KeepAliveTimeout      = 0x8d
	SessionTakenOver      = 0x8e
	FilterInvalid         = 0x8f
	TopicInvalid          = 0x90
	PacketIDNotFound      = 0x92
	ReceiveMaximumPassed  = 0x93
	TopicAliasInvalid     = 0x94
	PacketTooLarge        = 0x95
	QuotaExceeded         = 0x97
	AdministrativeAction  = 0x98
	PayloadFormatInvalid  = 0x99
	RetainNotSupported    = 0x9a
	QoSNotSupported       = 0x9b
	SharedNotSupported    = 0x9e
	MaximumConnectTime    = 0xa0
	SubIDsNotSupported    = 0xa1
	WildcardsNotSupported = 0xa2
)

// An Error is a packet that the standard forbids, with the reason code that says so.
type Error struct {
	Code byte
	Text string
}

// Error describes the violation.
func (e *Error) Error() string { return e.Text }

func malformed(format string, args ...any) error {
	return &Error{Malformed, fmt.Sprintf(format, args...)}
}

func violation(format string, args ...any) error {
	return &Error{ProtocolError, fmt.Sprintf(format, args...)}
}
