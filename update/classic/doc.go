// Package classic carries software updates over the twin of a device: Device Update for IoT Hub as
// it is generally available, over Plug and Play.
//
//	client, err := device.New(creds, mqtt.New(&mqtt.Options{ModelID: classic.ModelID}), nil)
//	service, err := classic.New(client)
//	a, err := agent.New(&agent.Options{
//		Service:    service,
//		Properties: agent.Properties{{Name: "manufacturer", Value: "Contoso"}, {Name: "model", Value: "Tractor"}},
//		Handlers:   handlers, Verify: keys.Verify, // and the other options of package agent
//	})
//	err = client.Start()
//	err = a.Run(ctx) // a Check when the service writes to the twin; reports go to the twin
//
// # What it does
//
// The service writes a deployment to the desired property "service" of the component
// "deviceUpdate". Check makes an offer of it, or the cancellation of what the agent does. It also
// acknowledges the property and reports the device's properties, if the twin has others. Report
// writes state and results to the reported property "agent". The page docs/device-update.md has the
// contract.
//
// Each Check and each Report reads the twin, and then sends only what differs: so a connection that
// is lost, a program that restarts, a patch that comes twice, and a move to another hub need no
// state in this package. Changes wake the agent, so its Interval may be a day.
//
// A client has one handler of desired properties, and the Service takes it. A program that needs
// them as well gives the Service to package twin in place of the client:
//
//	binding, err := twin.Bind(service, options)
//
// It works for devices and modules, over each transport with twins. The package needs encoding/json
// and is not for boards.
package classic
