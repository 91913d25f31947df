// Package sim holds tests of the whole system, device and transport and hub, and nothing else.
//
// The simulation draws a plan from a seed: messages, faults and calls of a nervous application,
// each at its own instant. It plays the plan in fake time and then keeps a ledger. A failing seed
// is printed with its plan and its log of events:
//
//	go test ./internal/sim                    20 seeds for each engine
//	go test ./internal/sim -all -seeds 2000   more of them, and for the variants of the engines
//	go test ./internal/sim -run TestSimulation -seed 4711 -v    one again
//
// The same seed is the same plan, and with go test nearly always the same run: events of one
// instant may change places. With the command replay they do not, so the run is the
// same one event by event; over TLS nearly always:
//
//	go run ./internal/cmd/replay ./internal/sim -run TestSimulation/amqp -seed 4711 -v
//	go run ./internal/cmd/replay -order 2 ./internal/sim -run TestSimulation/amqp -seed 4711 -v
//
// The second command plays the same plan in another order, which is the same each
// time. A seed that fails with go test and not there is tried with some orders.
package sim
