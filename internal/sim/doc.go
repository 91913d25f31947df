// Package sim contains only tests of the whole system: device, transport and hub.
//
// The simulation draws a plan from a seed: messages, faults, and calls of a busy application, each
// at its own time. It runs the plan in fake time and then checks a ledger. For a failing seed it
// prints the plan and a log of events. If a run panics or hangs, the first line of the traceback,
// or the name of the test, has the seed.
//
// TestSimulationOfMoves does the same with several hubs and a provisioning service: the device is
// moved, renamed, disabled, deleted and enrolled again while it sends. Its ledger also has the
// reasons to ask the service, and the number and pace of the requests.
//
// TestSimulationOfRestarts adds processes that end and begin, with the outbox on the disk. In every
// other run the device has certificates, and the run takes hours of fake time.
//
// TestSimulationOfKinds does that with certificates and hubs of both connection profiles: each move
// may lead to a hub of the other kind.
//
// TestSimulationOfGateways has an edge device: a gateway with routes, the daemon that signs for
// modules, two modules and a leaf device. The gateway restarts, also with another certificate,
// loses the hub, or starts after the modules. The ledger follows messages from outputs to inputs
// and to the hub, verdicts, both parts of the twins, and calls of methods. TestMatrixOfGateways
// runs every operation under everything that can befall the gateway and the daemon.
//
// TestLivesOfUpdates has the flash of a board with its boot loader, which updates itself over the
// provisioning service: each update has one final report, and the right image runs in the end,
// through power cuts at any write, resets, and faults of the network, the service and the files.
// 1,000 lives take two minutes.
//
// 2 seeds for each engine and a ninth of the matrices' cells, with all other tests; 2000 seeds for
// each engine and its variants, which take about 20 minutes on two cores; one seed again:
//
//	go test ./internal/sim
//	go test ./internal/sim -run TestSimulation -all -seeds 2000 -timeout 2h
//	go test ./internal/sim -run TestSimulation -seed 4711 -v
//
// The same seed gives the same plan, and with go test nearly always the same run: events of one
// instant may change their order. With the command replay they do not, so the run is identical
// event by event (over TLS nearly always):
//
//	go run ./internal/cmd/replay ./internal/sim -run TestSimulation/amqp -seed 4711 -v
//	go run ./internal/cmd/replay -order 2 ./internal/sim -run TestSimulation/amqp -seed 4711 -v
//
// The second command runs the same plan in another, also fixed, order. If a seed fails with go test
// and not with replay, try some orders.
package sim
