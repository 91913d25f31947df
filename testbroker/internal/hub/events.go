package hub

import (
	"fmt"
	"strings"
	"time"
)

// EventKind says what an [Event] is about.
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

// Event is something that happened at the hub. Fields that a kind has nothing to say in are zero.
type Event struct {
	Kind EventKind
	// Time is by the hub's clock.
	Time time.Time
	// Connection is the number of the connection, from 1; zero for a dial that was refused, and for
	// what happened on none.
	Connection uint64
	// DeviceID and ModuleID are whom it is about: what the client said it is, empty before its
	// CONNECT; of FaultDeclared and FaultRemoved, empty for all.
	DeviceID, ModuleID string
	// Code is the CONNACK code of Refused; zero when none was sent.
	Code byte
	// Status is the status code of HTTP of Refused, zero when none was sent; that of the answer of
	// TwinRequested and MethodAnswered.
	Status int
	// Fault is the kind of the fault of FaultFired, FaultDeclared and FaultRemoved.
	Fault FaultKind
	// Name is the message id of MessageStored and C2DChanged, which may be empty, the method, or
	// the file of UploadChanged. Of Refused it is the address of the link (AMQP) or the method and
	// path of the request (HTTP); empty when the whole connection was refused.
	Name string
	// Detail is the operation of TwinRequested, "desired" or "tags" of TwinChanged, the fate of the
	// answer of MethodAnswered, and the state of C2DChanged and UploadChanged.
	Detail string
	// Version is that of the properties to which TwinRequested or TwinChanged has led; zero for what
	// did not change any.
	Version int64
	// Bytes is the size of the body of MessageStored.
	Bytes int
	// Protocol is how MessageStored, TwinRequested and MethodAnswered came.
	Protocol Protocol
	// Err is why, for Refused, Disconnected and MethodFailed, and what was asked for, for FaultObeyed.
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

// what is what has happened, without where and why.
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

// Event completes e and tells who wants to know. No lock is held.
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

// Seconds rounds up.
func Seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
