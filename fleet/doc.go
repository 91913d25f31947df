// Package fleet simulates fleets of devices that reconnect to a hub: how many attempts reach it
// after an outage, when all devices are back, what that costs, and how that depends on the retry
// policy. Command fleet, in folder cmd/fleet, draws its results.
//
//	result, err := fleet.Run(ctx, fleet.RegionalOutage(100_000), fleet.Recommended(100_000), nil)
//
// A Scenario says what happens to a fleet, Rules are the settings of its devices. Both are values;
// Scenarios, Contenders and Recommended have ready ones.
//
// RunRollout simulates an update of all devices over one link instead: a Rollout under
// RolloutRules.
//
// # What is real
//
// The policies are those of retrypolicy, the verdicts those of errfilter. The rules around them are
// the code that the device client calls: minimum delays after throttling, the service's RetryAfter,
// when a connection counts as stable or useful, ReconnectSpread, the turns of a DialLimiter, the
// renewal of tokens, and the delays of package provisioning. They are called with simulated time.
//
// # What is a model
//
// The hub is a row of limiters: a front end that completes handshakes at a rate, then the limit of
// connects, and the limit of messages. Each takes a burst, delays what is beyond it, and refuses
// the rest (see Hub). A device sends up to 128 messages at a time and waits for the answer to all
// of them. Packets are not lost outside faults, and every attempt takes the same number of round
// trips.
//
// # Time
//
// Time advances in steps of a round trip (Hub.RTT). No answer arrives in the step of its request,
// so the devices of different blocks cannot influence each other within a step, and the hub answers
// the arrivals of a step afterwards in their exact order. For single devices that is exact, not an
// approximation. Devices of one Gateway share a policy or a limiter: among them, events of the same
// step that follow from each other may run up to one step out of order.
//
// Equal seeds give equal results on any number of workers: each device has its own random numbers,
// and blocks of devices do not depend on the workers.
package fleet
