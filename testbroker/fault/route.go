package fault

import (
	"fmt"
)

// RouteKind is the purpose of a request over HTTP.
type RouteKind uint8

const (
	// RouteAny means device requests of all kinds.
	RouteAny RouteKind = iota
	// RouteTelemetry sends a message or a batch.
	RouteTelemetry
	// RouteReceive requests a C2D message.
	RouteReceive
	// RouteSettle completes, abandons or rejects a C2D message.
	RouteSettle
	// RouteUpload requests an upload URI.
	RouteUpload
	// RouteUploadDone reports the result of an upload.
	RouteUploadDone
	// RouteBlob accesses a file in the store by an upload URI.
	RouteBlob
	// RouteRegistry, RouteTwin and RouteMethod are requests of back ends: to the registry, including
	// queries, to a twin, and method calls.
	RouteRegistry
	RouteTwin
	RouteMethod
	// RouteRegister and RouteOperation are requests to a provisioning service: registrations, and
	// polls of their state.
	RouteRegister
	RouteOperation
	// RouteInvoke is a method call of a module at a gateway. Fault.Device selects the calling module.
	RouteInvoke
	// RouteServiceMessage are requests of back ends about messages: C2D messages that they send, and
	// feedback and file notifications that they receive.
	RouteServiceMessage
	// RouteStorage are requests of back ends to the store: to the account, to containers and their
	// blobs, such as checkpoints, and to uploads by the account's key.
	RouteStorage
	// RouteUpdateCheck and RouteUpdateReport are requests of devices to an update service behind a
	// provisioning service, over any protocol: checks for an update and reports. RouteUpdateFile is a
	// download of a file or of root keys.
	RouteUpdateCheck
	RouteUpdateReport
	RouteUpdateFile
)

var routeNames = [...]string{
	RouteAny: "any", RouteTelemetry: "telemetry", RouteReceive: "receive", RouteSettle: "settle", RouteUpload: "upload",
	RouteUploadDone: "upload done", RouteBlob: "blob", RouteRegistry: "registry", RouteTwin: "twin", RouteMethod: "method",
	RouteRegister: "register", RouteOperation: "operation", RouteInvoke: "invoke",
	RouteServiceMessage: "service message", RouteStorage: "storage", RouteUpdateCheck: "update check",
	RouteUpdateReport: "update report", RouteUpdateFile: "update file",
}

// String returns the name of the kind.
func (k RouteKind) String() string {
	if int(k) < len(routeNames) {
		return routeNames[k]
	}
	return fmt.Sprintf("RouteKind(%d)", uint8(k))
}
