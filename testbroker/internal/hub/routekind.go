package hub

import "fmt"

// RouteKind is the purpose of a request over HTTP.
type RouteKind uint8

const (
	RouteAny RouteKind = iota
	RouteTelemetry
	RouteReceive
	RouteSettle
	RouteUpload
	RouteUploadDone
	RouteBlob
	RouteRegistry
	RouteTwin
	RouteMethod
)

var routeNames = [...]string{
	RouteAny: "any", RouteTelemetry: "telemetry", RouteReceive: "receive", RouteSettle: "settle", RouteUpload: "upload",
	RouteUploadDone: "upload done", RouteBlob: "blob", RouteRegistry: "registry", RouteTwin: "twin", RouteMethod: "method",
}

// String returns the name of the kind.
func (k RouteKind) String() string {
	if int(k) < len(routeNames) {
		return routeNames[k]
	}
	return fmt.Sprintf("RouteKind(%d)", uint8(k))
}
