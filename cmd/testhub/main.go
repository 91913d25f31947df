// Command testhub is the in-process hub of package testbroker as a program: an IoT hub on this
// machine, for people who try something out and for tests in any language. Devices reach it over
// MQTT, AMQP and HTTPS, each also over WebSocket, back ends over HTTPS; what goes wrong at it is
// declared over a control API.
//
//	go run ./cmd/testhub -free -device dev-1           free ports, a device with new keys; each event is printed
//	go run ./examples/fan -hub http://127.0.0.1:PORT   a device for it, with HUBLINE_CONNECTION_STRING set
//	go run ./cmd/testhub -devices hub.json -json       the ports of the service, devices from a file, lines of JSON
//	curl http://127.0.0.1:PORT/                        what the control API can do
//
// README.md beside this file tells all flags, the file of devices and the control API with
// examples.
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
