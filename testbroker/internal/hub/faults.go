package hub

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// FaultKind is the kind of a fault.
type FaultKind uint16

// Faults of a connect. Each happens to CONNECT packets, before the credentials are checked unless
// stated otherwise.
const (
	RefuseConnect FaultKind = iota + 1
	SlowConnack
	NoConnack
	DropConnect
	ForgetSession
	GarbageOnConnect
)

// Faults of a message. Each happens to PUBLISH packets; those about PUBACKs, and Forget, only to
// QoS 1. "Cut" means with RST.
const (
	DropDuringPublish FaultKind = iota + 10
	DropBeforePublish
	DropAfterPublish
	DropAfterPuback
	DelayPuback
	SwallowPuback
	Forget
	StrayPuback
	DuplicatePuback
	GarbageOnPublish
)

// Faults with a duration. Each begins at once or, when After is not zero, with the message after
// that many. It lasts until For has passed or it is removed. Times and Probability have no effect.
// Fired counts the single effects.
const (
	HalfOpen FaultKind = iota + 20
	Throttle
	Absent
	Quota
)

// Faults of a subscription. Each happens to SUBSCRIBE packets.
const (
	RefuseSubscribe FaultKind = iota + 30
	DropOnSubscribe
	SwallowSuback
	SlowSuback
	LongSuback
	ShortSuback
	GarbageOnSubscribe
)

// Faults of a TLS handshake. Each happens to connections to a port with TLS, before the hub knows
// the device: with Device set they never happen.
const (
	MuteHandshake FaultKind = iota + 40
	NotTLS
	CutHandshake
	OldTLS
	ExpiredCertificate
)

// SwallowPingresp leaves a PINGREQ unanswered. It happens to PINGREQ packets.
const SwallowPingresp FaultKind = 50

// Faults of an attach over AMQP. Each happens to attaches of links of the kind Link, or of any kind
// if Link is [LinkAny], after the hub has checked the client's right to attach.
const (
	RefuseAttach FaultKind = iota + 100
	SlowAttach
	NoAttach
	DropOnAttach
	WithholdCredit
	DetachWhileIdle
)

// Faults of a telemetry message over AMQP. Each happens to messages; a batch is one message. Only
// DetachAfterMessage stores the message.
const (
	RejectMessage FaultKind = iota + 110
	ReleaseMessage
	ModifyMessage
	CloseOnMessage
	EndOnMessage
	DetachOnMessage
	DetachAfterMessage
)

// Faults of authentication over AMQP.
const (
	RefuseSASL FaultKind = iota + 120
	RefuseToken
	SlowToken
	NoToken
	DropOnToken
)

// Faults of a request over HTTP. Each happens to requests of the kind Route, or of any kind if
// Route is [RouteAny]. Faults that cut or garble the layer below HTTP/2 end all requests on the
// connection.
const (
	AnswerStatus FaultKind = iota + 200
	AnswerStatusAfter
	ResetBeforeRequest
	ResetAfterRequest
	NoAnswer
	DropDuringAnswer
	SlowAnswer
	GarbageAnswer
	WrongDate
	NoContentLength
)

// String returns the name of the constant.
func (k FaultKind) String() string {
	if row, ok := faultTable[k]; ok {
		return row.name
	}
	return fmt.Sprintf("FaultKind(%d)", uint16(k))
}

// lasts reports whether the kind has a duration instead of a number of times.
func (k FaultKind) lasts() bool { return k >= HalfOpen && k <= Quota }

// Fault declares a fault: its kind, its target and its time.
type Fault struct {
	// Kind is required.
	Kind FaultKind
	// Device selects a device and its modules by the device id, or one module as "deviceID/moduleID".
	// Empty means all.
	Device string

	// After is how many matching events pass before the first hit: with After 2 the third event is the
	// first hit. Events count from Inject on, across all connections. An event that another fault has
	// ended does not count.
	After int
	// Times is how often the fault happens: 0 means once, negative means until it is removed.
	Times int
	// Probability, from 0 to 1, is the chance of each event to be a hit; 0 means always. The draws are
	// derived from Options.Seed.
	Probability float64
	// For is the time from the fault's beginning to its end; 0 means no end.
	For time.Duration

	// Code is the CONNACK code of RefuseConnect (1 to 255, default 3, server unavailable), the SUBACK
	// code of RefuseSubscribe (default 0x80, failure) and the outcome of RefuseSASL (default 1).
	Code byte
	// Condition and Description are the AMQP error with which the hub refuses, closes, ends, detaches
	// or rejects. The default is "amqp:connection:forced" for a connection, "amqp:link:detach-forced"
	// for a detached link, and "amqp:internal-error" otherwise.
	Condition, Description string
	// Status is the status code of RefuseToken (default 401), of RefuseTwin and RefuseMethod (default
	// 429), and over HTTP of RefuseConnect (default 503).
	Status int
	// Statuses are the status codes of AnswerStatus and AnswerStatusAfter, 200 to 599, used in turn.
	// Their number is the default of Times. Zero lets a request pass. Default: 503.
	Statuses []int
	// ErrorCode is the service's six-digit code that RefuseConnect over HTTP, AnswerStatus,
	// AnswerStatusAfter, RefuseTwin and RefuseMethod put into answers of 400 and above. Default: the
	// usual code of the status. Description is its text.
	ErrorCode int
	// RetryAfter, unless zero, is sent in whole seconds in the header Retry-After of RefuseConnect,
	// AnswerStatus and AnswerStatusAfter, and in the answer of RefuseTwin. RetryAfterDate sends it,
	// and the delay of Throttle, as a date: see [HTTPOptions].
	RetryAfter     time.Duration
	RetryAfterDate bool
	// Route is the kind of HTTP requests to which request faults and Throttle happen.
	Route RouteKind
	// Blob is the blob store operation to which they happen, for requests of the kind [RouteBlob].
	Blob BlobOperation
	// Skew is the clock skew of WrongDate. Positive means that the hub is ahead.
	Skew time.Duration
	// Operation is the kind of requests to which twin faults happen.
	Operation TwinOperation
	// Method is the name of the method to which method faults happen.
	Method string
	// Link is the kind of links to which attach faults happen.
	Link LinkKind
	// Unclosed makes the fault detach a link without closing it. Clients treat such a detach in
	// different ways.
	Unclosed bool
	// UndeliverableHere sets the flag undeliverable-here of ModifyMessage.
	UndeliverableHere bool
	// Delay is the delay of SlowConnack, DelayPuback, SlowSuback, SlowAttach, WithholdCredit,
	// DetachWhileIdle, SlowToken, SlowAnswer, SlowTwin, SlowDesired, SlowMethod, SlowMethodAnswer and
	// SlowBlob.
	Delay time.Duration
	// Rate is how many PUBACKs a second Throttle sends. Default: 1.
	Rate float64
	// Limit is the number of delayed PUBACKs at which Throttle closes a connection, or the messages a
	// day of Quota. Default: 100.
	Limit int
	// AcceptConnects makes Quota accept connects and close them at once, instead of refusing them.
	AcceptConnects bool
	// Bytes is the output of GarbageOnConnect, GarbageOnSubscribe, GarbageOnPublish and GarbageAnswer.
	// Default: the first bytes of a packet with an unknown type and a length without end; over AMQP a
	// frame that is too short, over HTTP/1.1 a line that is not a status line, over HTTP/2 a PING
	// without its eight bytes. It is also the body of GarbleTwin and GarbleMethod.
	Bytes []byte
}

// Injected is a fault passed to Inject. It stays valid after the fault has ended.
type Injected struct {
	hub   *Hub
	Fault Fault
	draws *rand.Rand // used under faults.mu

	// Guarded by Faults.Mu.
	seen  int       // matching events so far
	left  int       // remaining hits; negative = no limit
	fired int       // hits that happened
	begun bool      // in force; false while a fault with a duration waits for its first message
	until time.Time // when it ends; zero = no end
	Step  int       // Statuses used so far
	Next  time.Time // Throttle: when the next PUBACK may be sent, or the next request is accepted
	day   int64     // Quota: the day that used counts
	used  int       // Quota: messages so far
}

// Faults is the set of faults injected into a hub.
type Faults struct {
	seed  uint64
	count atomic.Int32 // length of list; zero is the fast path

	Mu   sync.Mutex
	list []*Injected
	made uint64 // faults so far; each draws from its own stream
}

func (f *Faults) init(seed uint64) {
	f.seed = cmp.Or(seed, rand.Uint64())
}

// Inject implements testbroker.Hub.Inject.
func (h *Hub) Inject(f Fault) *Injected {
	row, ok := faultTable[f.Kind]
	if !ok {
		panic("testbroker: Inject: unknown " + f.Kind.String())
	}
	if f.Kind == AnswerStatus || f.Kind == AnswerStatusAfter {
		f.Statuses = checkedStatuses(f.Statuses)
	}
	f.Times = cmp.Or(f.Times, len(f.Statuses), 1)
	f.Condition = cmp.Or(f.Condition, row.condition)
	f.Status = cmp.Or(f.Status, row.status)
	f.Code = cmp.Or(f.Code, row.code)
	f.Rate = cmp.Or(max(f.Rate, 0), 1)
	if f.Kind == Quota {
		f.Limit = max(cmp.Or(f.Limit, 100), 0)
	} else {
		f.Limit = cmp.Or(max(f.Limit, 0), 100)
	}
	f.Bytes = slices.Clone(f.Bytes)
	in := &Injected{hub: h, Fault: f, left: f.Times}

	h.Faults.Mu.Lock()
	h.Faults.made++
	in.draws = rand.New(rand.NewPCG(h.Faults.seed, h.Faults.made))
	h.Faults.list = append(h.Faults.list, in)
	h.Faults.count.Store(int32(len(h.Faults.list)))
	if !f.Kind.lasts() || f.After == 0 {
		in.beginLocked()
	}
	begun := in.begun
	h.Faults.Mu.Unlock()
	h.Event(in.event(FaultDeclared), nil)
	if begun {
		h.Begin(in)
	}
	return in
}

func checkedStatuses(all []int) []int {
	if len(all) == 0 {
		return []int{503}
	}
	for _, s := range all {
		if s != 0 && (s < 200 || s > 599) {
			panic(fmt.Sprintf("testbroker: Inject: status %d", s))
		}
	}
	return slices.Clone(all)
}

func (in *Injected) beginLocked() {
	in.begun = true
	if in.Fault.For > 0 {
		in.until = time.Now().Add(in.Fault.For)
	}
}

// Begin applies a fault to the existing connections.
func (h *Hub) Begin(in *Injected) {
	if in.Fault.Kind != HalfOpen && in.Fault.Kind != Absent {
		return
	}
	for _, c := range h.ConnsOf(in.Fault.Device) {
		if in.Fault.Kind == HalfOpen {
			if c.Silence() {
				h.Happened(in, c)
			}
			continue
		}
		if c.Mode.Load() != Over {
			h.Happened(in, c)
			c.CutFor(FaultError(Absent))
		}
	}
}

// Fired returns how often the fault has happened.
func (in *Injected) Fired() int {
	in.hub.Faults.Mu.Lock()
	defer in.hub.Faults.Mu.Unlock()
	return in.fired
}

// WaitFired waits until the fault has happened at least n times. It fails when the context ends or
// the hub is closed.
func (in *Injected) WaitFired(ctx context.Context, n int) error {
	return in.hub.until(ctx, func() bool { return in.Fired() >= n })
}

// Remove ends the fault. Its past effects remain. A second Remove does nothing.
func (in *Injected) Remove() {
	f := &in.hub.Faults
	f.Mu.Lock()
	there := slices.Contains(f.list, in)
	f.removeLocked(in)
	f.Mu.Unlock()
	if there {
		in.hub.Event(in.event(FaultRemoved), nil)
	}
}

// event returns the event of a fault that was declared or removed.
func (in *Injected) event(k EventKind) Event {
	id := SplitIdentity(in.Fault.Device)
	return Event{Kind: k, Fault: in.Fault.Kind, DeviceID: id.Device, ModuleID: id.Module}
}

func (f *Faults) removeLocked(in *Injected) {
	f.list = slices.DeleteFunc(slices.Clone(f.list), func(other *Injected) bool { return other == in })
	f.count.Store(int32(len(f.list)))
}

// Take returns a fault of this kind that hits the present event, and uses up one of its times; nil
// if there is none. The caller applies the fault, then calls Happened.
func (f *Faults) Take(kind FaultKind, id Identity) *Injected { return f.TakeIf(kind, id, nil) }

// TakeIf is Take for faults that depend on more than the identity.
func (f *Faults) TakeIf(kind FaultKind, id Identity, ok func(*Fault) bool) *Injected {
	if f.count.Load() == 0 {
		return nil
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	var hit *Injected
	for _, in := range f.activeLocked() {
		if in.Fault.Kind != kind || !id.Matches(in.Fault.Device) || ok != nil && !ok(&in.Fault) {
			continue
		}
		in.seen++
		if in.seen <= in.Fault.After || hit != nil || in.left == 0 {
			continue
		}
		if p := in.Fault.Probability; p > 0 && in.draws.Float64() >= p {
			continue
		}
		in.left--
		hit = in
	}
	return hit
}

// Release gives back a time used up by Take, when the connection ended before the fault could
// happen.
func (f *Faults) Release(in *Injected) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	in.left++
}

// InForce returns a fault with a duration that is in force for an identity; nil if there is none.
func (f *Faults) InForce(kind FaultKind, id Identity) *Injected { return f.InForceIf(kind, id, nil) }

// InForceIf is InForce for faults that depend on more than the identity.
func (f *Faults) InForceIf(kind FaultKind, id Identity, ok func(*Fault) bool) *Injected {
	if f.count.Load() == 0 {
		return nil
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	for _, in := range f.activeLocked() {
		if in.Fault.Kind == kind && in.begun && id.Matches(in.Fault.Device) && (ok == nil || ok(&in.Fault)) {
			return in
		}
	}
	return nil
}

// Reached counts an arriving message for faults with a duration, and returns those that begin with
// it.
func (f *Faults) Reached(id Identity) []*Injected {
	if f.count.Load() == 0 {
		return nil
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	var begun []*Injected
	for _, in := range f.activeLocked() {
		if in.begun || !id.Matches(in.Fault.Device) {
			continue
		}
		if in.seen++; in.seen > in.Fault.After {
			in.beginLocked()
			begun = append(begun, in)
		}
	}
	return begun
}

// activeLocked returns the faults that have not ended. The slice is never modified.
func (f *Faults) activeLocked() []*Injected {
	for _, in := range f.list {
		if !in.until.IsZero() && time.Until(in.until) <= 0 {
			f.removeLocked(in)
		}
	}
	return f.list
}

// Pace returns when Throttle sends the next PUBACK; the zero time means at once.
func (f *Faults) Pace(in *Injected) time.Time {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	now := time.Now()
	at := in.Next
	if at.Before(now) {
		at = now
	}
	in.Next = at.Add(time.Duration(float64(time.Second) / in.Fault.Rate))
	if at.Equal(now) {
		return time.Time{}
	}
	return at
}

// Happened counts a fault. It is called when the effect is certain. If the client can observe the
// effect, it is called just before, so that a client that has seen a fault finds it counted. c is
// nil when there is no connection yet.
func (h *Hub) Happened(in *Injected, c *Conn) { h.HappenedTo(in, c, Identity{}) }

// HappenedTo is Happened for one identity of a connection that can have many.
func (h *Hub) HappenedTo(in *Injected, c *Conn, id Identity) {
	h.Faults.Mu.Lock()
	in.fired++
	h.Faults.Mu.Unlock()
	h.Event(Event{Kind: FaultFired, Fault: in.Fault.Kind, DeviceID: id.Device, ModuleID: id.Module}, c)
	h.Changed.Wake()
}

// FaultError is the cause of a connection's end when a fault ended it.
type FaultError FaultKind

// Error names the fault.
func (e FaultError) Error() string { return "fault " + FaultKind(e).String() }
