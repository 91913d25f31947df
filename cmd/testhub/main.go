// Command testhub runs the in-process hub of package testbroker as a program: an IoT hub on this
// machine, for experiments and for tests in any language. Devices connect over MQTT, AMQP and
// HTTPS, the first two also over WebSocket, back ends over HTTPS. A provisioning service can assign
// devices to it and to further hubs. A control API declares faults. A page, at its address, shows
// a person what happens, and lets them use all of it.
//
//	go run ./cmd/testhub -free -device dev-1           free ports, a device with new keys; prints each event
//	go run ./examples/fan -hub http://127.0.0.1:PORT   a device for it, with HUBLINE_CONNECTION_STRING set
//	go run ./cmd/testhub -devices hub.json -json       the ports of the service, devices from a file, JSON lines
//	go run ./cmd/testhub -free -enroll sensor-1        a provisioning service too, and a device that may register
//	curl http://127.0.0.1:PORT/                        lists the control API; a browser gets the page
//
// README.md in this directory describes all flags and the device file, API.md the control API with
// examples, and CLIENTS.md what each SDK needs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
