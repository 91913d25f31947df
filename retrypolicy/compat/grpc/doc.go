// Package grpc has the retries of gRPC, as gRFC A6 defines them: the [Policy], the [Throttle] that
// goes around it, and a classifier of status codes. It does not import gRPC: a callback ([Status])
// finds the code in an error.
package grpc
