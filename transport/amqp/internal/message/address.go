package message

import (
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// Addresses returns the addresses of an identity's links to a hub. A module has its inputs for
// commands, and no cloud-to-device messages.
func Addresses(creds *transport.Credentials) (telemetry, commands, twin, methods string) {
	path := string(texts.AppendEscaped([]byte("/devices/"), creds.DeviceID))
	telemetry, commands = "/messages/events", "/messages/devicebound"
	if creds.ModuleID != "" {
		path = string(texts.AppendEscaped([]byte(path+"/modules/"), creds.ModuleID))
		commands = telemetry
	}
	return path + telemetry, path + commands, path + "/twin", path + "/methods/devicebound"
}
