package hub

import "fmt"

// RouteKind says what a request over HTTP is for.
type RouteKind uint8

const (
	// RouteAny stands for requests of devices, of all kinds.
	RouteAny RouteKind = iota
	// RouteTelemetry sends a message or a batch.
	RouteTelemetry
	// RouteReceive asks for a command.
	RouteReceive
	// RouteSettle completes, abandons or rejects a command.
	RouteSettle
	// RouteUpload asks for a place to put a file.
	RouteUpload
	// RouteUploadDone tells how an upload went.
	RouteUploadDone
	// RouteBlob is about a file in the store.
	RouteBlob
	// RouteRegistry, RouteTwin and RouteMethod are requests of back ends: about the registry, which
	// includes queries, about a twin, and to call a method.
	RouteRegistry
	RouteTwin
	RouteMethod
)

var routeNames = [...]string{
	RouteAny: "any", RouteTelemetry: "telemetry", RouteReceive: "receive", RouteSettle: "settle", RouteUpload: "upload",
	RouteUploadDone: "upload done", RouteBlob: "blob", RouteRegistry: "registry", RouteTwin: "twin", RouteMethod: "method",
}

// String names the kind.
func (k RouteKind) String() string {
	if int(k) < len(routeNames) {
		return routeNames[k]
	}
	return fmt.Sprintf("RouteKind(%d)", uint8(k))
}
