// Package pnp implements the conventions of IoT Plug and Play on top of a device.Client. It
// extracts the writable properties of the device and its components from desired properties, builds
// patches of reported properties with the answers to them, names commands, and marks the telemetry
// of components.
//
//	client.HandleDesired(func(ctx context.Context, d device.Desired) {
//		wishes, err := pnp.Properties(d)
//		var patch pnp.Patch
//		for _, wish := range wishes {
//			patch.Answer(wish, pnp.Answer{Status: pnp.OK})
//		}
//		body, err := patch.JSON()
//		_, err = client.PatchReported(ctx, body)
//	})
//	err = client.HandleMethod(pnp.Command("thermostat1", "reboot"), reboot)
//	err = pnp.SetComponent(message, "thermostat1")
//	err = client.Send(ctx, message)
//
// The model that a device announces is an option of its transport (ModelID). This package does not
// read models: the program and the hub know which properties exist, and their types.
//
// A device without components uses the empty component name, which means the root of the model. Its
// telemetry needs no mark.
//
// It uses encoding/json, which is large for a board; a program that does not import this package
// does not link it.
//
// Source: Microsoft, "IoT Plug and Play conventions".
package pnp
