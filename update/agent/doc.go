// Package agent takes a device through the updates of a service: it asks for an offer, verifies it
// whole, lets the program's handlers install it, and reports the result until the service has it.
//
//	a, err := agent.New(&agent.Options{
//		Service:    service,                                       // update/dpsupdate or update/classic
//		Handlers:   map[string]agent.Handler{"": handler},         // update/handler, update/swap, or yours
//		Verify:     keys.Verify,                                   // update/adusign
//		Fetch:      fetcher, Store: store,                         // update/host
//		Properties: agent.Properties{{"manufacturer", "Contoso"}, {"model", "Tractor"}},
//		Installed:  func() agent.UpdateID { return running },
//	})
//	err = a.Run(ctx) // returns agent.ErrRestart when the program shall restart
//
// # Parts
//
// A Service brings offers and takes reports. A Handler does the steps of one kind. A Store keeps
// the agent's state, so that an update survives a reset. A Fetcher reads files. All of them are
// small interfaces: the package builds for boards and links no network.
package agent
