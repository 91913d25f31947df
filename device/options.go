package device

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/messageid"
	"github.com/hubline-iot/hubline/internal/timespan"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Options tune a Client. Nil, and the zero value of each field, mean the stated default.
type Options struct {
	// RetryPolicy decides about reconnects, and about messages unless MessagePolicy is set. Default:
	// ExponentialBackoffWithJitter{}.
	//
	// A policy that is a retrypolicy.Gate is asked before each attempt to connect and for each message
	// before it is handed over: one that waits holds what is behind it too, one that refuses ends the
	// attempts, or that message alone, with RetryExpired. A retrypolicy.Observer learns how each of
	// them ended: an attempt to connect has succeeded once the connection is up for StableTime.
	// Attempt.Key is the hub's host name. Clients of one process may share a policy.
	//
	// A policy that can stop (MaxAttempts, MaxElapsed, a quota, a gate that refuses) makes the client
	// Disconnected when it stops about a connection, and gives the message up, with RetryExpired, when
	// it stops about a message. If only connections shall be given up, set MessagePolicy to one that
	// does not stop.
	RetryPolicy retrypolicy.Policy
	// MessagePolicy decides about sending a message again that the service refused for now. Default:
	// RetryPolicy. A message that was in flight when the connection was lost is not refused: it goes
	// again without asking.
	MessagePolicy retrypolicy.Policy
	// PacedPolicy decides alone about failures with a slow pace (errfilter.Slow: Throttled,
	// Quota, ClockUnset). Default: the policies above decide whether, and the delay is at least that
	// of ExponentialBackoffWithJitter with C = 5 s, Cmin = 10 s, Cmax = 60 s. It is only asked to
	// decide; gates, quotas and observers belong into the policies above.
	PacedPolicy retrypolicy.Policy

	// OnStatus is called with each Status, in order, by one goroutine at a time. It may call the
	// client's methods, but Close only in a goroutine of its own (Close waits for OnStatus). While it
	// is busy up to 16 further statuses wait; older ones give way, counted in Status.Missed. Default:
	// none.
	OnStatus func(Status)

	// Inbox is how many cloud-to-device messages may wait for their handler (Client.HandleMessages).
	// Further ones are left to the hub, which delivers them again, later. Default 64, which is more
	// than a hub keeps for a device; at most 4,096.
	Inbox int
	// MethodLimit is how many handlers of direct methods (Client.HandleMethod) run at a time. Default
	// 4; at most 1,024.
	MethodLimit int
	// MethodTimeout is how long a handler of a direct method has until its context ends. Default 30 s,
	// which is how long a hub waits unless the caller says otherwise.
	MethodTimeout time.Duration
	// Trace has callbacks for details that Status leaves out. Default: none.
	Trace *Trace

	// Window is the most messages in flight. Default 128; at most 61,440. A session may allow fewer.
	Window int
	// MaxMessages bounds the outbox by count. Default 4,096; at most 61,440.
	MaxMessages int
	// MaxBytes bounds the outbox by the sum of Message.Size. Default 16 MiB.
	MaxBytes int
	// Overflow says what happens to a message when the outbox is full. Default Block.
	Overflow Overflow

	// MessageIDPrefix begins the ids that the client gives to messages without one, so that a consumer
	// can tell a message that was sent again: the prefix, "-" and a counter. At most 64 ASCII letters,
	// digits and "-._~". It must be another one each time the program starts, because messages with
	// the same id count as the same message. Default: eight random characters; builds by TinyGo, which
	// may have no source of entropy, give no ids by default. A message so large that the hub would not
	// take it with an id goes without.
	MessageIDPrefix string
	// NoMessageIDs leaves messages without an id as they are. It saves some 20 bytes a message.
	NoMessageIDs bool

	// DialTimeout bounds one attempt to connect, handshake included. It starts again while the attempt
	// waits its turn on a shared connection that is slow and makes progress. Default 30 s.
	DialTimeout time.Duration
	// AckTimeout is how long the oldest message in flight may wait for its answer before the
	// connection counts as dead: since it was handed over, since the message before it was answered,
	// or since a slow connection last took bytes that it had kept waiting (transport.Progressor). A
	// message has a second more for each 4 KiB of its size. A twin request without an answer is
	// repeated after the same time. Default 30 s, or what the session says if that is longer
	// (transport.Info.AckTimeout): over HTTPS what http.Options.Timeout allows.
	AckTimeout time.Duration
	// OperationTimeout bounds a Send in all. Default 4 minutes; negative: only its context does.
	OperationTimeout time.Duration
	// CloseTimeout bounds each of the steps of Close: the end of the handlers that run, of the
	// transport, and of a running OnStatus. Default 5 s.
	CloseTimeout time.Duration
	// StableTime is how long a connection must have stayed up for the count of retries to begin at 1
	// again. After one that was lost earlier the count goes on, so a flapping link backs off, unless
	// the connection was useful: a message was acknowledged or received on it, it was up for 500 ms
	// and for five times the delay before it, and it was not lost for a reason with a slow pace
	// (errfilter.Slow). So a link that makes progress between its losses spends most of the time
	// connected, while a peer that accepts connections and drops them at once is dialed ever less
	// often. A connection that was cut for a missing answer was up until AckTimeout began to run.
	// Default 30 s.
	StableTime time.Duration
	// OutageLimit ends the retries (RetryExpired) when the next one would start later than this after
	// the connection was lost, or after Open or Start. Default 0: no limit.
	OutageLimit time.Duration
	// TryAgainAfter makes nothing final but Close: where the client would become Disconnected
	// (NotRetryable, RetryExpired), it waits this long and begins again, with the count of retries at
	// 0; longer if the service asked for it. Open then waits through all of that, for its context
	// alone. For devices that nobody can reach. Default 0: Disconnected.
	TryAgainAfter time.Duration
	// ReconnectSpread adds a random part, up to this, to the delay before each retry of a connection,
	// so that a fleet that lost its hub together does not come back together. Default 0.
	ReconnectSpread time.Duration
	// Dials limits the attempts to connect of all clients that share it. Waiting for a turn is not
	// bounded by DialTimeout or OutageLimit. Default: no limit.
	Dials *DialLimiter
	// RenewAt is the part of a token's life after which the client replaces its connection by one with
	// a fresh token, as a planned reconnect, less up to 5 % at random. Default 0.85; negative: never,
	// the hub will cut the connection.
	RenewAt float64

	// Rand is the source of random numbers for the policies, called by one goroutine of each client.
	// Default: a generator of the client's own, seeded from the identity and the time, so no two
	// devices draw the same.
	Rand func() uint64
}

// Overflow says what happens to a message that finds the outbox full.
type Overflow uint8

const (
	// Block: the call waits for room, its context's end or Close.
	Block Overflow = iota
	// Fail: the call returns an error of Kind Dropped.
	Fail
	// DropOldest: the oldest message that is not in flight makes room, with the result Dropped. If all
	// are in flight, the new one is dropped.
	DropOldest
	// DropNewest: the new message is accepted and has the result Dropped at once.
	DropNewest

	overflows // number of rules
)

// settings are Options with the defaults filled in.
type settings struct {
	Options
	ownAck bool // AckTimeout is no default
}

func newSettings(o *Options) (settings, error) {
	var s settings
	if o != nil {
		s.Options = *o
	}
	s.ownAck = s.AckTimeout != 0
	for _, f := range [...]struct {
		name      string
		value     *int
		def, most int
	}{
		{"Window", &s.Window, 128, transport.MaxTags},
		{"MaxMessages", &s.MaxMessages, 4096, transport.MaxTags},
		{"MaxBytes", &s.MaxBytes, 16 << 20, 1<<31 - 1},
		{"Inbox", &s.Inbox, 64, 4096},
		{"MethodLimit", &s.MethodLimit, 4, 1024},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < 0 || *f.value > f.most {
			return s, invalidOption(f.name + " is out of range; give 1 to its documented limit, or 0 for the default")
		}
	}
	for _, f := range [...]struct {
		name  string
		value *time.Duration
		def   time.Duration
		off   bool // a negative value is legal
	}{
		{"DialTimeout", &s.DialTimeout, 30 * time.Second, false},
		{"AckTimeout", &s.AckTimeout, 30 * time.Second, false},
		{"OperationTimeout", &s.OperationTimeout, 4 * time.Minute, true},
		{"MethodTimeout", &s.MethodTimeout, 30 * time.Second, false},
		{"CloseTimeout", &s.CloseTimeout, 5 * time.Second, false},
		{"StableTime", &s.StableTime, 30 * time.Second, false},
		{"OutageLimit", &s.OutageLimit, 0, false},
		{"TryAgainAfter", &s.TryAgainAfter, 0, false},
		{"ReconnectSpread", &s.ReconnectSpread, 0, false},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		*f.value = timespan.Cap(*f.value)
		if *f.value < 0 && !f.off {
			return s, invalidOption(f.name + " is negative; give a positive duration, or 0 for the default")
		}
	}
	if !messageid.Valid(s.MessageIDPrefix) {
		return s, invalidOption("MessageIDPrefix is too long or has a character that not every protocol carries; give at " +
			"most 64 ASCII letters, digits and -._~")
	}
	if s.RenewAt == 0 {
		s.RenewAt = 0.85
	}
	if s.RenewAt > 0 && s.RenewAt < 0.1 || !(s.RenewAt < 1) {
		return s, invalidOption("RenewAt is not a sensible part of a life; give 0.1 to less than 1, 0 for 0.85, or a " +
			"negative number for never")
	}
	if s.Dials != nil && s.Dials.places == nil {
		return s, invalidOption("Dials was not made by NewDialLimiter; make it so")
	}
	if s.Overflow >= overflows {
		return s, invalidOption("Overflow is not one of Block, Fail, DropOldest, DropNewest")
	}
	if s.RetryPolicy == nil {
		s.RetryPolicy = retrypolicy.ExponentialBackoffWithJitter{}
	}
	for _, p := range [...]retrypolicy.Policy{s.RetryPolicy, s.MessagePolicy, s.PacedPolicy} {
		if p == nil {
			continue // the default of MessagePolicy and PacedPolicy
		}
		if err := retrypolicy.Validate(p); err != nil {
			return s, err
		}
	}
	return s, nil
}

// messageIDPrefix returns what the ids of messages begin with, nothing if the client gives none.
func (s *settings) messageIDPrefix() string {
	switch {
	case s.NoMessageIDs:
		return ""
	case s.MessageIDPrefix != "":
		return s.MessageIDPrefix
	}
	return messageid.Random()
}

func invalidOption(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpOpen, Err: errors.New("options: " + text)}
}
