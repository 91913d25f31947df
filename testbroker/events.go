package testbroker

import (
	"fmt"
	"time"
)

// EventKind says what an [Event] is about.
type EventKind uint8

const (
	// Connected: a client was authenticated; its CONNACK is about to be sent. Over AMQP, where a connection can have many
	// devices, it was told of one more of them. Over HTTP, a request was the first of its device on a connection that was
	// authenticated.
	Connected EventKind = iota + 1
	// Refused: a client got a CONNACK with another code than 0, or was cut off without one. Over AMQP, its SASL outcome,
	// put-token or attach was not good, or it was cut off before any was. Over HTTP, a request was not authenticated, or the
	// connection ended without a request that was.
	Refused
	// Disconnected: a connection that was Connected has ended, or lost the right to act for a device.
	Disconnected
	// FaultFired: a declared fault has happened.
	FaultFired
	// FaultObeyed: a fault that a device asked for by a message has happened.
	FaultObeyed
)

var eventNames = [...]string{Connected: "connected", Refused: "refused", Disconnected: "disconnected", FaultFired: "fault", FaultObeyed: "fault"}

// String returns the kind in lower case.
func (k EventKind) String() string {
	if int(k) < len(eventNames) && eventNames[k] != "" {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is something that happened at the hub.
type Event struct {
	Kind EventKind
	// Time is by the hub's clock.
	Time time.Time
	// Connection is the number of the connection, from 1; zero for a dial that was refused.
	Connection uint64
	// DeviceID and ModuleID are what the client said it is, empty before its CONNECT.
	DeviceID, ModuleID string
	// Code is the CONNACK code of Refused; zero when none was sent.
	Code byte
	// Status is the status code of HTTP of Refused; zero when none was sent.
	Status int
	// Fault is the kind of the fault of FaultFired.
	Fault FaultKind
	// Err is why, for Refused and Disconnected, and what was asked for, for FaultObeyed.
	Err error
}

// String returns the event as a line of text without its time.
func (e Event) String() string {
	s := fmt.Sprintf("#%d %s %s", e.Connection, identity{e.DeviceID, e.ModuleID}, e.Kind)
	if e.DeviceID == "" {
		s = fmt.Sprintf("#%d %s", e.Connection, e.Kind)
	}
	switch {
	case e.Kind == FaultFired:
		s += " " + e.Fault.String()
	case e.Code != 0:
		s += fmt.Sprintf(" with code %d", e.Code)
	case e.Status != 0:
		s += fmt.Sprintf(" with status %d", e.Status)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// event completes e and tells who wants to know. No lock is held.
func (h *Hub) event(e Event, c *conn) {
	if h.onEvent == nil {
		return
	}
	e.Time = h.now()
	if c != nil {
		h.mu.Lock()
		id := c.id
		h.mu.Unlock()
		e.Connection = c.number
		if e.DeviceID == "" {
			e.DeviceID, e.ModuleID = id.device, id.module
		}
	}
	h.onEvent(e)
}
