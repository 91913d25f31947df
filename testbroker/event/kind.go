package event

import (
	"fmt"
)

// Kind is the kind of an [Event].
type Kind uint8

const (
	// Connected: a client was authenticated; its CONNACK is about to be sent. Over AMQP, a connection
	// can have many devices and has an event for each. Over HTTP, it is a device's first authenticated
	// request on a connection.
	Connected Kind = iota + 1
	// Refused: a client got a CONNACK with a code other than 0, or was cut off without one. Over AMQP:
	// its SASL outcome, put-token or attach was refused, or it was cut off before one was accepted.
	// Over HTTP: a request was not authenticated or named an unknown resource, or the connection ended
	// before a request was served. A client that connects, says nothing and disconnects causes no
	// event, or after a TLS handshake Silent.
	Refused
	// Disconnected: a connection that was Connected has ended, or lost the right to serve a device.
	Disconnected
	// FaultFired: a declared fault has happened.
	FaultFired
	// FaultObeyed: a fault that a device requested with a message has happened.
	FaultObeyed
	// MessageStored: telemetry was added to the log. It is not acknowledged yet.
	MessageStored
	// TwinRequested: a client's twin request was executed or refused. The answer is about to be sent.
	TwinRequested
	// TwinChanged: a back end has changed desired properties or tags. Listeners are about to be
	// notified.
	TwinChanged
	// MethodCalled: a back end has called a method. The call is about to be delivered, if the device
	// is connected.
	MethodCalled
	// MethodAnswered: a client has answered a method.
	MethodAnswered
	// MethodFailed: a call has ended without an accepted answer.
	MethodFailed
	// C2DChanged: a C2D message has entered a state, the first of which is hubdata.C2DEnqueued. The
	// events of one device are in order.
	C2DChanged
	// UploadChanged: an upload has begun or ended. An expiry is reported only if a fault or
	// testbroker.Hub.ExpireUploads caused it.
	UploadChanged
	// FaultDeclared and FaultRemoved: testbroker.Hub.Inject and testbroker.Injected.Remove were
	// called.
	FaultDeclared
	FaultRemoved
	// HubReset: testbroker.Hub.Reset has finished.
	HubReset
	// RegistrationAnswered: a provisioning service is about to answer a device's request.
	RegistrationAnswered
	// InputChanged: a message to an input of a module has entered a state, like C2DChanged.
	InputChanged
	// GatewayChanged: the gateway is on-line, off-line or stopped.
	GatewayChanged
	// Silent: a client has finished the TLS handshake and disconnected without a word. It is a probe,
	// or it does not trust the hub's certificate.
	Silent
	// UpdateAnswered: a provisioning service is about to answer a device's check for an update, or its
	// report on one.
	UpdateAnswered
)

var eventNames = [...]string{
	Connected: "connected", Refused: "refused", Disconnected: "disconnected", FaultFired: "fault", FaultObeyed: "fault",
	MessageStored: "message",
	TwinRequested: "twin-requested", TwinChanged: "twin-changed", MethodCalled: "method-called",
	MethodAnswered: "method-answered",
	MethodFailed:   "method-failed", C2DChanged: "c2d", UploadChanged: "upload", FaultDeclared: "fault-declared",
	FaultRemoved: "fault-removed",
	HubReset:     "reset", RegistrationAnswered: "registration", InputChanged: "input", GatewayChanged: "gateway",
	Silent: "silent", UpdateAnswered: "update",
}

// String returns the kind in lower case.
func (k Kind) String() string {
	if int(k) < len(eventNames) && eventNames[k] != "" {
		return eventNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}
