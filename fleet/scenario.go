package fleet

import "time"

// Scenario is what happens to a fleet: the devices, their hub and the faults. The zero value of a
// field selects the stated default.
type Scenario struct {
	Name string
	// Devices is the number of devices, from 1 to 4,000,000.
	Devices int
	// Gateway is the number of devices that share a process, and with it the policy's state and the
	// limiter of dials. Default 1; at most 16,384.
	Gateway int
	// Duration is the simulated time, at most 7 days. Default 1 h.
	Duration time.Duration
	// PowerOn is the time within which the devices are switched on, at random. 0: they are connected
	// at the beginning. Negative: they are switched on at the same moment.
	PowerOn time.Duration
	// Faults are the losses of connections.
	Faults []Fault
	// Hub is what the devices connect to.
	Hub Hub
	// Telemetry is what they send.
	Telemetry Telemetry
	// Tokens are their credentials.
	Tokens Tokens
	// Provisioning is what they do before the first connection.
	Provisioning Provisioning
	// Radio gives the energy of an attempt.
	Radio Radio
}

// Telemetry is the load of messages.
type Telemetry struct {
	// Every is the interval between two messages of a device. 0: no messages. At least 1 s.
	Every time.Duration
	// Size is the number of bytes of a message on the wire. Default 512.
	Size int
	// Day has the relative rate for each hour of the day, from the beginning; 2 halves the interval,
	// 0 means no messages in that hour. All zero: constant.
	Day [24]float64
}

// Tokens are credentials that expire.
type Tokens struct {
	// Life is the life of a token. 0: tokens do not expire. At least 1 min.
	Life time.Duration
	// Together: the tokens that the devices hold at the beginning were issued at that moment.
	// Otherwise their ages are spread over Life.
	Together bool
}

// Provisioning is the registration with a provisioning service before the first connection.
type Provisioning struct {
	// Rate is the number of registrations a second that the service takes. 0: the devices are
	// registered. Azure publishes 1,000 a minute, which is 1000.0/60.
	Rate float64
	// Burst is how far ahead of Rate the service takes registrations. Default 1 min: the limit counts
	// minutes.
	Burst time.Duration
	// RetryAfter is what the service asks for in a refusal. Default 0: nothing.
	RetryAfter time.Duration
	// Assign is the time from an accepted registration to the assigned hub. Default 5 s.
	Assign time.Duration
}

// Radio gives the energy of a device's radio, a cellular one by default. The radio is on from the
// beginning of an attempt or message until Tail after its end. The defaults are assumptions about
// an LTE radio with a long tail. That the tail dominates is a result of Huang et al., "A Close
// Examination of Performance and Power Characteristics of 4G LTE Networks", MobiSys 2012.
type Radio struct {
	// Promotion is the energy in joules to switch the radio on. Default 0.315: 260 ms at 1.21 W.
	Promotion float64
	// On is the power in watts while the radio is on. Default 1.06.
	On float64
	// Tail is how long the radio stays on after the last byte. Default 11.576 s.
	Tail time.Duration
	// Byte is the energy in joules for each byte, both directions alike. Default 3.5e-6: 438 mW per
	// Mbit/s.
	Byte float64
}
