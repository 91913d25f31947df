package fleet

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Tier is the edition of a hub, which sets its limits.
type Tier uint8

const (
	// TierS1 stands for the free tier, B1 and S1.
	TierS1 Tier = iota
	// TierS2 stands for B2 and S2.
	TierS2
	// TierS3 stands for B3 and S3.
	TierS3

	tiers // number of tiers
)

// limits are the published limits of a tier in connects, and in messages, a second: the larger of
// least and unit for each unit. Source: Microsoft, "IoT Hub quotas and throttling".
var limits = [tiers]struct {
	name              string
	least, unit, most float64 // most is the number of units that can be bought
}{
	TierS1: {"S1", 100, 12, 200},
	TierS2: {"S2", 120, 120, 200},
	TierS3: {"S3", 6000, 6000, 10},
}

// String returns the name of the tier.
func (t Tier) String() string {
	if t >= tiers {
		return "undefined tier"
	}
	return limits[t].name
}

// Hub is the service that the fleet connects to. Published limits are the defaults; the other
// defaults are assumptions, because nobody publishes them.
type Hub struct {
	Tier Tier
	// Units is the number of units bought. Default 1.
	Units int
	// Connects and Messages are the limits a second. Default: those of Tier and Units.
	Connects, Messages float64
	// Burst is how far ahead of its limits the hub takes requests at once. The published text says
	// minutes; the default of 10 s is cautious.
	Burst time.Duration
	// Queue is how long the hub delays requests beyond Burst before it refuses them. Default 10 s.
	// Negative: it refuses at once.
	Queue time.Duration
	// ConnectKind is the failure of a connect over the limit: Unavailable (CONNACK 3 of MQTT) by
	// default, Throttled over AMQP and HTTPS.
	ConnectKind transport.Kind
	// MessageKind is the failure of a message over the limit: Network by default, since MQTT 3 has no
	// refusal and the hub closes the connection; Throttled over AMQP and HTTPS.
	MessageKind transport.Kind
	// RetryAfter is what the hub asks for when it refuses. Default 0: nothing.
	RetryAfter time.Duration
	// RTT is the round trip between device and hub. Default 50 ms; from 10 ms to 1 s.
	RTT time.Duration
	// Trips is the number of round trips from the first packet to CONNACK: TCP, TLS 1.2 and CONNECT
	// make 4, the default.
	Trips int
	// Handshakes is the number of TLS handshakes a second that the front end completes, those included
	// that the limit refuses later. Default: ten times Connects.
	Handshakes float64
	// Accept is how long the front end's queue of handshakes may be; a full queue drops connections,
	// and the attempt ends after DialTimeout. Default 5 s.
	Accept time.Duration
	// Wire gives the bytes of an attempt.
	Wire Wire
}

// Wire gives the bytes of an attempt, both directions together.
type Wire struct {
	// Handshake is that of TCP, TLS 1.2 with the service's certificates, CONNECT and CONNACK. Default
	// 6,500.
	Handshake int
	// Refused is that of a connection that is reset. Default 100.
	Refused int
	// Silent is that of a dial without an answer: five SYN in 30 s. Default 300.
	Silent int
}

// limiter admits requests at a rate. It is a virtual queue: full is when the work that was admitted
// would be done if all had waited for it.
type limiter struct {
	each  float64 // nanoseconds for each request
	burst float64
	queue float64
	full  float64
}

func newLimiter(rate float64, burst, queue time.Duration) limiter {
	return limiter{each: float64(time.Second) / rate, burst: float64(burst), queue: float64(queue)}
}

// take admits n requests at time t and returns how long they wait, or refuses them.
func (l *limiter) take(t int64, n int) (wait int64, ok bool) {
	at := float64(t)
	full := max(l.full, at) + l.each*float64(n)
	if full-at > l.burst+l.queue && l.full > at+l.burst {
		return 0, false
	}
	l.full = full
	return int64(max(0, full-at-l.burst)), true
}

// service is the hub's state. Only the merge of a step uses it, in the order of arrival.
type service struct {
	handshakes, connects, messages, registers limiter
	rtt, dial                                 int64
	assign                                    int64
}

// answer is the hub's reply to an arrival: when the device has it, and the outcome.
type answer struct {
	at      int64
	device  int32 // in its block
	outcome outcome
}

// connect answers an attempt that begins at t.
func (s *service) connect(t int64) answer {
	wait, ok := s.handshakes.take(t, 1)
	if !ok {
		return answer{outcome: dropped, at: never}
	}
	more, ok := s.connects.take(t+wait, 1)
	if !ok {
		return answer{outcome: connectRefused, at: t + s.dial + wait}
	}
	return answer{outcome: accepted, at: t + s.dial + wait + more}
}

// register answers a registration that begins at t.
func (s *service) register(t int64) answer {
	if _, ok := s.registers.take(t, 1); !ok {
		return answer{outcome: registerRefused, at: t + s.dial}
	}
	return answer{outcome: registered, at: t + s.dial + s.assign}
}

// send answers a batch of n messages.
func (s *service) send(t int64, n int) answer {
	wait, ok := s.messages.take(t, n)
	if !ok {
		return answer{outcome: messageRefused, at: t + s.rtt}
	}
	return answer{outcome: acknowledged, at: t + s.rtt + wait}
}
