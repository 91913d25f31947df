package fleet

import (
	"math"

	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/retrypolicy"
)

// never is later than every event.
const never = math.MaxInt64

// state is what a device does. A device has at most one pending event, at device.at.
//
//	waiting --> queued, atTurn --> arriving --> answering --> up <--> sending
//	   ^            |                               |          |        |
//	   +------------+-------------------------------+----------+--------+ failed
//
//	any --> ended: the rules give up
type state uint8

const (
	waiting   state = iota // for the next attempt
	queued                 // for a slot of the limiter of dials; no event
	atTurn                 // has a slot and waits for its turn
	arriving               // a request reaches the hub in this step; no event
	answering              // for the answer to an attempt
	up
	sending // up, and waiting for the answer to messages
	ended   // no event

	states // number of states
)

// device is one device. Times are nanoseconds from the beginning of the simulation. The block that
// holds it owns it; between steps the merge of arrivals does.
type device struct {
	draws
	at    int64 // the next event
	since int64 // the outage began
	began int64 // the running attempt or batch of messages
	upAt  int64 // the connection came up
	loss  int64 // the next fault begins, or the device notices it
	renew int64 // the token is renewed or expires
	due   int64 // the next message is generated
	hold  int64 // no message is sent before; while noticing: when the fault began
	radio int64 // the radio switches off
	retry int32
	batch int32 // messages in flight
	queue int32 // messages in the queue, those in flight included
	pause int32 // refusals of messages in a row
	came  int32 // messages acknowledged on this connection

	state    state
	result   outcome
	fault    uint8 // which fault loss is about
	noticing bool  // the connection is dead and the device does not know it yet
	renewed  bool  // a refused token was replaced
	reported bool  // the policy knows the outcome of the latest attempt
	ready    bool  // registered with the provisioning service
	again    bool  // a registration was throttled before

	last   retrypolicy.Decision
	series *reconnect.Series // of the outage; nil: the policies have no memory
	_      [56]byte          // fills the third cache line: devices that straddle four cost more
}

// draws is the state of the random numbers of a device: SplitMix64, one stream for each.
type draws uint64

func (d *draws) draw() uint64 {
	*d += 0x9e3779b97f4a7c15
	return mix(uint64(*d))
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// process is what the devices of a gateway share.
type process struct {
	policies reconnect.Policies
	// curve is the only policy if it is that of the client's default, or nil. It decides by the number
	// of the retry and the draw alone, so it is called directly: through the interface, all of an
	// Attempt is copied twice, which takes a third of the time of a run.
	curve *retrypolicy.ExponentialBackoffWithJitter
	// remembers: the policies have memory, so devices have a series.
	remembers bool
	dials     *dials // nil: not limited
}

func newProcess(p reconnect.Policies) process {
	s := process{policies: p}
	if curve, ok := p.Policy.(retrypolicy.ExponentialBackoffWithJitter); ok && p.Paced == nil {
		s.curve = &curve
	}
	s.remembers = s.begin() != nil
	return s
}

func (p *process) begin() *reconnect.Series { return p.policies.Begin("hub") }

// plain reports whether the devices of the process do not influence each other.
func (p *process) plain() bool { return !p.remembers && p.dials == nil }
