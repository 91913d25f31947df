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

// FaultKind says what goes wrong.
type FaultKind uint16

// Which protocols a kind is for is told by [FaultKind.Protocols]. What is said of packets of MQTT
// holds for what AMQP has in their place: the open of a connection for CONNECT and CONNACK, a
// telemetry message for PUBLISH, its disposition for PUBACK. At the open the hub knows the device
// only of a client that used SASL PLAIN; for others, faults of a connect with Device set never
// happen, but there are those of a put-token. Over HTTP it is the first request of a device on a
// connection for CONNECT and CONNACK, a request with a message or a batch for PUBLISH, and its
// answer for PUBACK.

// Faults of a connect. Each happens to CONNECT packets, before the credentials are looked at unless
// it says otherwise.
const (
	RefuseConnect FaultKind = iota + 1
	SlowConnack
	NoConnack
	DropConnect
	ForgetSession
	GarbageOnConnect
)

// Faults of a message. Each happens to PUBLISH packets; those about PUBACKs, and Forget, only to
// QoS 1. "Cut" means by RST.
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

// Faults with a duration. Each begins at once, or when After is not zero with the message after
// that many, and lasts until For has passed or it is removed. Times and Probability mean nothing to
// them. Fired counts their single effects.
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

// Faults of a TLS handshake. Each happens to connections to a port with TLS, before anything is
// known of the device: with Device set they never happen.
const (
	MuteHandshake FaultKind = iota + 40
	NotTLS
	CutHandshake
	OldTLS
	ExpiredCertificate
)

// SwallowPingresp never answers a PINGREQ. It happens to PINGREQ packets.
const SwallowPingresp FaultKind = 50

// Faults of an attach over AMQP. Each happens to attaches of links of the kind Link, or of any if
// Link is [LinkAny], after the client was found to have the right to attach.
const (
	RefuseAttach FaultKind = iota + 100
	SlowAttach
	NoAttach
	DropOnAttach
	WithholdCredit
	DetachWhileIdle
)

// Faults of a telemetry message over AMQP. Each happens to messages, of which a batch is one. Only
// DetachAfterMessage stores it.
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

// Faults of a request over HTTP. Each happens to requests of the kind Route, or of any if Route is
// [RouteAny]. Those that cut or garble what is below HTTP/2 end all that is on the connection.
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

// lasts reports whether the kind has a duration rather than a number of times.
func (k FaultKind) lasts() bool { return k >= HalfOpen && k <= Quota }

// Fault declares what goes wrong, to whom and when.
type Fault struct {
	// Kind is required.
	Kind FaultKind
	// Device selects a device with its modules by its id, or one module as "deviceID/moduleID". Empty
	// means all.
	Device string

	// After is how many matching events pass before the fault may happen: with After 2 the third is
	// the first hit. Events count from Inject on, over all connections. An event that another fault
	// has already ended does not count.
	After int
	// Times is how often it happens: 0 means once, negative means until it is removed.
	Times int
	// Probability, from 0 to 1, makes each event a hit by chance; 0 means always. The draws follow
	// from Options.Seed.
	Probability float64
	// For ends the fault that long after it began; 0 means no end.
	For time.Duration

	// Code is the CONNACK code of RefuseConnect, 1 to 255; default: 3, server unavailable. It is also
	// the SUBACK code of RefuseSubscribe; default: 0x80, failure; and the outcome of RefuseSASL;
	// default: 1.
	Code byte
	// Condition and Description are the error of AMQP with which the hub refuses, closes, ends,
	// detaches or rejects. The default is "amqp:connection:forced" for a connection,
	// "amqp:link:detach-forced" for a link that is detached, and "amqp:internal-error" otherwise.
	Condition, Description string
	// Status is the status code of RefuseToken, by default 401, of RefuseTwin and RefuseMethod, by
	// default 429, and over HTTP of RefuseConnect, by default 503.
	Status int
	// Statuses are the status codes of AnswerStatus and AnswerStatusAfter, 200 to 599, which take
	// turns. Times is by default their number. Zero lets a request pass. Default: 503.
	Statuses []int
	// ErrorCode is the six-digit code of the service that RefuseConnect over HTTP, AnswerStatus,
	// AnswerStatusAfter, RefuseTwin and RefuseMethod put into answers of 400 and above. Default: the
	// one that usually comes with the status. Description is its text.
	ErrorCode int
	// RetryAfter, unless zero, is said in the header Retry-After of those three, and in the answer of
	// RefuseTwin, in whole seconds. RetryAfterDate says it, and what Throttle says, as a date: see
	// [HTTPOptions].
	RetryAfter     time.Duration
	RetryAfterDate bool
	// Route is the kind of requests over HTTP to which faults of a request, and Throttle, happen.
	Route RouteKind
	// Blob is the operation of the store to which these happen, of requests of the kind [RouteBlob].
	Blob BlobOperation
	// Skew is that of WrongDate: positive means that the hub is ahead.
	Skew time.Duration
	// Operation is the kind of requests to which faults of a twin happen.
	Operation TwinOperation
	// Method is the name of the method to which faults of methods happen.
	Method string
	// Link is the kind of links to which faults of an attach happen.
	Link LinkKind
	// Unclosed makes the detach of a fault one that does not close the link: clients are in doubt what
	// to do about it.
	Unclosed bool
	// UndeliverableHere is a flag of ModifyMessage.
	UndeliverableHere bool
	// Delay is that of SlowConnack, DelayPuback, SlowSuback, SlowAttach, WithholdCredit,
	// DetachWhileIdle, SlowToken, SlowAnswer, SlowTwin, SlowDesired, SlowMethod, SlowMethodAnswer and
	// SlowBlob.
	Delay time.Duration
	// Rate is the PUBACKs a second of Throttle. Default: 1.
	Rate float64
	// Limit is the number of PUBACKs due at which Throttle closes a connection, or the messages a day
	// of Quota. Default: 100.
	Limit int
	// AcceptConnects makes Quota accept connects and close them at once, instead of refusing them.
	AcceptConnects bool
	// Bytes is what GarbageOnConnect, GarbageOnSubscribe, GarbageOnPublish and GarbageAnswer send.
	// Default: the first bytes of a packet of a type that does not exist and a length that never ends;
	// over AMQP a frame that is too short to be one, over HTTP/1.1 a line that is no status, over
	// HTTP/2 a PING without its eight bytes. It is also the body of GarbleTwin and GarbleMethod.
	Bytes []byte
}

// Injected is a fault in force, or one that was.
type Injected struct {
	hub   *Hub
	Fault Fault
	draws *rand.Rand // used under faults.mu

	// Guarded by faults.mu.
	seen  int       // matching events so far
	left  int       // hits to come; negative = no limit
	fired int       // hits that happened
	begun bool      // it is in force; false while a fault with a duration waits for its message
	until time.Time // its end; zero = none
	Step  int       // of Statuses so far
	Next  time.Time // Throttle: when the next PUBACK may go, or the next request come
	day   int64     // Quota: the day that used is about
	used  int       // Quota: messages so far
}

// Faults is all that is injected into a hub.
type Faults struct {
	seed  uint64
	count atomic.Int32 // length of list, to pass by quickly when there is none

	Mu   sync.Mutex
	list []*Injected
	made uint64 // faults so far; each draws from a stream of its own
}

func (f *Faults) init(seed uint64) {
	f.seed = cmp.Or(seed, rand.Uint64())
}

// Inject is testbroker.Hub.Inject.
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

// Begin does what a fault does to the connections that exist.
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

// Remove ends the fault. What it has done stays done. A second Remove does nothing.
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

// event tells that the fault was declared or removed.
func (in *Injected) event(k EventKind) Event {
	id := SplitIdentity(in.Fault.Device)
	return Event{Kind: k, Fault: in.Fault.Kind, DeviceID: id.Device, ModuleID: id.Module}
}

func (f *Faults) removeLocked(in *Injected) {
	f.list = slices.DeleteFunc(slices.Clone(f.list), func(other *Injected) bool { return other == in })
	f.count.Store(int32(len(f.list)))
}

// Take asks whether a fault of this kind hits the present event, and if so uses up one of its
// times. The caller makes it happen, then says so.
func (f *Faults) Take(kind FaultKind, id Identity) *Injected { return f.TakeIf(kind, id, nil) }

// TakeIf is take for faults that are about more than the identity.
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

// Release gives back what take took, because the connection ended before it could happen.
func (f *Faults) Release(in *Injected) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	in.left++
}

// InForce returns a fault with a duration that is in force for an identity.
func (f *Faults) InForce(kind FaultKind, id Identity) *Injected { return f.InForceIf(kind, id, nil) }

// InForceIf is inForce for faults that are about more than the identity.
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

// Reached tells faults with a duration that a message arrived, and returns those that begin with
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

// activeLocked returns the faults that are not over. The slice is never changed.
func (f *Faults) activeLocked() []*Injected {
	for _, in := range f.list {
		if !in.until.IsZero() && time.Until(in.until) <= 0 {
			f.removeLocked(in)
		}
	}
	return f.list
}

// Pace returns when Throttle lets the next PUBACK go, the zero time meaning now.
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

// Happened counts a fault. It is called when nothing can prevent the effect any more and, where the
// client could see it, just before: who has seen a fault finds it counted. c is nil when there is
// no connection yet.
func (h *Hub) Happened(in *Injected, c *Conn) { h.HappenedTo(in, c, Identity{}) }

// HappenedTo is happened for an identity of a connection that may have many.
func (h *Hub) HappenedTo(in *Injected, c *Conn, id Identity) {
	h.Faults.Mu.Lock()
	in.fired++
	h.Faults.Mu.Unlock()
	h.Event(Event{Kind: FaultFired, Fault: in.Fault.Kind, DeviceID: id.Device, ModuleID: id.Module}, c)
	h.Changed.Wake()
}

// FaultError is the cause of a connection's end by a fault.
type FaultError FaultKind

// Error names the fault.
func (e FaultError) Error() string { return "fault " + FaultKind(e).String() }
