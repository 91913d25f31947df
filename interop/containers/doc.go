// Package containers has a test that uses testhub in a container, by testcontainers-go.
//
// It is a module of its own and no part of the workspace, so that nothing else links a container
// engine's client: go test ./... runs here with GOWORK=off.
package containers
