package event

import (
	"fmt"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// Event is something that happened at the hub. Fields that a kind does not use are zero.
type Event struct {
	Kind Kind
	// Time is a time of the hub's clock.
	Time time.Time
	// Connection is the number of the connection, from 1; zero for a refused dial and for an event
	// without a connection.
	Connection uint64
	// DeviceID and ModuleID are the identity that the event concerns, as the client stated it; empty
	// before its CONNECT. For FaultDeclared and FaultRemoved, empty means all.
	DeviceID, ModuleID string
	// Code is the CONNACK code of Refused, or the SUBACK code of a topic filter; zero if none was
	// sent.
	Code byte
	// Status is the HTTP status code of Refused (zero if none was sent), or the status of the answer
	// for TwinRequested, MethodAnswered, RegistrationAnswered and UpdateAnswered.
	Status int
	// Fault is the kind of the fault of FaultFired, FaultDeclared and FaultRemoved.
	Fault fault.Kind
	// Name is the message id of MessageStored, C2DChanged and InputChanged, which may be empty, the
	// method, or the file of UploadChanged. For Refused it is the address of the link (AMQP), the
	// topic filter (MQTT) or the method and path of the request (HTTP); empty when the whole
	// connection was refused. For
	// RegistrationAnswered it is the hub of the device; empty unless the device is assigned. For
	// UpdateAnswered it is the offered workflow or the reported outcome, if any.
	Name string
	// Detail is the operation of TwinRequested, "desired" or "tags" of TwinChanged, the fate of the
	// answer of MethodAnswered, the state of C2DChanged, InputChanged and UploadChanged, or the
	// request of RegistrationAnswered: "register", "poll" or "lookup". For UpdateAnswered it is
	// "onboarding check", "update check" or "update report". For GatewayChanged it is "on-line",
	// "off-line" or "stopped".
	Detail string
	// Version is the new version of the properties after TwinRequested or TwinChanged; zero if nothing
	// changed.
	Version int64
	// Bytes is the size of the body of MessageStored.
	Bytes int
	// Protocol is the protocol of MessageStored, TwinRequested, MethodAnswered,
	// RegistrationAnswered and UpdateAnswered.
	Protocol hubdata.Protocol
	// Err is the cause of Refused, Disconnected and MethodFailed, the requested fault of FaultObeyed,
	// and why a registration of RegistrationAnswered failed; nil unless it did.
	Err error
}

// String returns the event as a line of text without its time.
func (e Event) String() string {
	var s []string
	if e.Connection != 0 || e.Kind <= FaultObeyed {
		s = append(s, fmt.Sprintf("#%d", e.Connection))
	}
	if e.DeviceID != "" {
		name := e.DeviceID
		if e.ModuleID != "" {
			name += "/" + e.ModuleID
		}
		s = append(s, name)
	}
	s = append(s, e.what())
	text := strings.Join(s, " ")
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// what describes the event without place and cause.
func (e Event) what() string {
	named := func(what string) string {
		if e.Name == "" {
			return what + " without an id"
		}
		return fmt.Sprintf("%s %q", what, e.Name)
	}
	s := e.Kind.String()
	switch e.Kind {
	case Refused:
		if e.Name != "" {
			s = named(s)
		}
		if e.Code != 0 {
			s += fmt.Sprintf(" with code %d", e.Code)
		} else if e.Status != 0 {
			s += fmt.Sprintf(" with status %d", e.Status)
		}
	case FaultFired:
		s += " " + e.Fault.String()
	case FaultDeclared:
		s = "fault " + e.Fault.String() + " declared"
	case FaultRemoved:
		s = "fault " + e.Fault.String() + " removed"
	case MessageStored:
		s = fmt.Sprintf("%s, %d bytes over %s", named("message"), e.Bytes, e.Protocol)
	case TwinRequested:
		s = fmt.Sprintf("twin %s: status %d", e.Detail, e.Status)
	case TwinChanged:
		s = "twin changed: " + e.Detail
	case MethodCalled:
		s = named("method") + " called"
	case MethodAnswered:
		s = fmt.Sprintf("%s answered: status %d", named("method"), e.Status)
		if e.Detail != hubdata.AnswerTaken.String() {
			s += ", " + e.Detail
		}
	case MethodFailed:
		s = named("method") + " failed"
	case C2DChanged:
		s = named("C2D message") + " " + e.Detail
	case InputChanged:
		s = named("input message") + " " + e.Detail
	case GatewayChanged:
		s += " " + e.Detail
	case UploadChanged:
		s = named("upload") + " " + e.Detail
	case RegistrationAnswered:
		if s = fmt.Sprintf("%s: status %d", e.Detail, e.Status); e.Name != "" {
			s += ", assigned to " + e.Name
		}
	case UpdateAnswered:
		if s = fmt.Sprintf("%s: status %d", e.Detail, e.Status); e.Name != "" {
			s += ", " + e.Name
		}
	case Connected, Disconnected, FaultObeyed, HubReset, Silent:
	}
	if e.Version != 0 {
		s += fmt.Sprintf(", version %d", e.Version)
	}
	return s
}
