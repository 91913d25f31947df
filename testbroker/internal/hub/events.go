package hub

import (
	"fmt"
	"strings"
	"time"
)

// EventKind is the kind of an [Event].
type EventKind uint8

const (
	Connected EventKind = iota + 1
	Refused
	Disconnected
	FaultFired
	FaultObeyed
	MessageStored
	TwinRequested
	TwinChanged
	MethodCalled
	MethodAnswered
	MethodFailed
	C2DChanged
	UploadChanged
	FaultDeclared
	FaultRemoved
	HubReset
)

var eventNames = [...]string{
	Connected: "connected", Refused: "refused", Disconnected: "disconnected", FaultFired: "fault", FaultObeyed: "fault",
	MessageStored: "message",
	TwinRequested: "twin-requested", TwinChanged: "twin-changed", MethodCalled: "method-called",
	MethodAnswered: "method-answered",
	MethodFailed:   "method-failed", C2DChanged: "command", UploadChanged: "upload", FaultDeclared: "fault-declared",
	FaultRemoved: "fault-removed",
	HubReset:     "reset",
}

// String returns the kind in lower case.
func (k EventKind) String() string {
	if int(k) < len(eventNames) && eventNames[k] != "" {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is something that happened at the hub. Fields that a kind does not use are zero.
type Event struct {
	Kind EventKind
	// Time is a time of the hub's clock.
	Time time.Time
	// Connection is the number of the connection, from 1; zero for a refused dial and for an event
	// without a connection.
	Connection uint64
	// DeviceID and ModuleID are the identity that the event concerns, as the client stated it; empty
	// before its CONNECT. For FaultDeclared and FaultRemoved, empty means all.
	DeviceID, ModuleID string
	// Code is the CONNACK code of Refused; zero if none was sent.
	Code byte
	// Status is the HTTP status code of Refused (zero if none was sent), or the status of the answer
	// for TwinRequested and MethodAnswered.
	Status int
	// Fault is the kind of the fault of FaultFired, FaultDeclared and FaultRemoved.
	Fault FaultKind
	// Name is the message id of MessageStored and C2DChanged, which may be empty, the method, or the
	// file of UploadChanged. For Refused it is the address of the link (AMQP) or the method and path
	// of the request (HTTP); empty when the whole connection was refused.
	Name string
	// Detail is the operation of TwinRequested, "desired" or "tags" of TwinChanged, the fate of the
	// answer of MethodAnswered, or the state of C2DChanged and UploadChanged.
	Detail string
	// Version is the new version of the properties after TwinRequested or TwinChanged; zero if nothing
	// changed.
	Version int64
	// Bytes is the size of the body of MessageStored.
	Bytes int
	// Protocol is the protocol of MessageStored, TwinRequested and MethodAnswered.
	Protocol Protocol
	// Err is the cause of Refused, Disconnected and MethodFailed, and the requested fault of
	// FaultObeyed.
	Err error
}

// String returns the event as a line of text without its time.
func (e Event) String() string {
	var s []string
	if e.Connection != 0 || e.Kind <= FaultObeyed {
		s = append(s, fmt.Sprintf("#%d", e.Connection))
	}
	if e.DeviceID != "" {
		s = append(s, Identity{e.DeviceID, e.ModuleID}.String())
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
		if e.Detail != AnswerTaken.String() {
			s += ", " + e.Detail
		}
	case MethodFailed:
		s = named("method") + " failed"
	case C2DChanged:
		s = named("command") + " " + e.Detail
	case UploadChanged:
		s = named("upload") + " " + e.Detail
	case Connected, Disconnected, FaultObeyed, HubReset:
	}
	if e.Version != 0 {
		s += fmt.Sprintf(", version %d", e.Version)
	}
	return s
}

// Event completes e and calls Options.OnEvent. The caller holds no lock.
func (h *Hub) Event(e Event, c *Conn) {
	if h.onEvent == nil {
		return
	}
	e.Time = h.Now()
	if c != nil {
		h.Mu.Lock()
		id := c.ID
		h.Mu.Unlock()
		e.Connection = c.Number
		if e.DeviceID == "" {
			e.DeviceID, e.ModuleID = id.Device, id.Module
		}
	}
	h.onEvent(e)
}

// Store adds a message to the log.
func (h *Hub) Store(m Message) {
	h.log.add(m)
	h.Event(Event{
		Kind: MessageStored, Connection: m.Connection, DeviceID: m.DeviceID, ModuleID: m.ModuleID, Name: m.MessageID,
		Bytes: len(m.Body), Protocol: m.Protocol,
	}, nil)
}

// Seconds returns d in seconds, rounded up.
func Seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
