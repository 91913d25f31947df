// Package sim holds tests of the whole system, device and transport and hub, and nothing else.
//
// The simulation draws a plan from a seed (messages, faults, calls of a nervous application, all at their own instants), plays it in fake time, and
// then keeps a ledger. The same seed is the same plan, and nearly always the same run: what happens in one instant may change places. A failing seed is printed with its plan and its log of events:
//
//	go test ./internal/sim                    50 seeds
//	go test ./internal/sim -seeds 2000        more of them
//	go test ./internal/sim -run TestSimulation -seed 4711 -v    one again
package sim
