package workload

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
)

// FaultKind is what goes wrong.
type FaultKind uint8

const (
	// FaultAnswerStatus answers with Fault.Status, default 500, and does not handle the request.
	FaultAnswerStatus FaultKind = iota + 1
	// FaultSlow delays the request by Fault.Delay, then handles it.
	FaultSlow
	// FaultMute leaves the request unanswered. The connection stays open.
	FaultMute
	// FaultCutBefore cuts the connection and does not handle the request. FaultCutAfter handles it
	// and cuts the connection in place of the answer. FaultCutDuring cuts it in the middle of the
	// answer.
	FaultCutBefore
	FaultCutAfter
	FaultCutDuring
	// FaultNotHTTP answers with Fault.Bytes, default a line that is not a status line.
	FaultNotHTTP
	// FaultGarbage answers 200 with the body Fault.Bytes, default the beginning of a JSON object.
	FaultGarbage
	// FaultMalformed answers 200 with JSON of the right form whose digest or ciphertext is not
	// base64, or whose certificate is not PEM.
	FaultMalformed
	// FaultOversized answers 200 with JSON of the right form and Fault.Size bytes, default 16 MiB.
	FaultOversized
	// FaultWrongDigest signs with another key. It happens to CallSign.
	FaultWrongDigest
	// FaultUnknownModule answers 404, as for a generation id of an earlier module. It happens to
	// calls for a module.
	FaultUnknownModule
	// FaultStaleBundle leaves out the present authority of the hub, as if the bundle were from
	// before the last rotation. It happens to CallTrustBundle, and has no effect before the first
	// rotation.
	FaultStaleBundle
	// FaultForeignBundle answers with the certificate of an authority that signed nothing. It
	// happens to CallTrustBundle.
	FaultForeignBundle
	// FaultAbsent makes the server unreachable, like [Server.Stop], from Inject on until Fault.For
	// is over or the fault is removed. It uses only that field.
	FaultAbsent
)

// faultKinds has the name of each kind, and the call to which it happens; CallAny: to all.
var faultKinds = map[FaultKind]struct {
	name string
	call Call
}{
	FaultAnswerStatus:  {name: "AnswerStatus"},
	FaultSlow:          {name: "Slow"},
	FaultMute:          {name: "Mute"},
	FaultCutBefore:     {name: "CutBefore"},
	FaultCutAfter:      {name: "CutAfter"},
	FaultCutDuring:     {name: "CutDuring"},
	FaultNotHTTP:       {name: "NotHTTP"},
	FaultGarbage:       {name: "Garbage"},
	FaultMalformed:     {name: "Malformed"},
	FaultOversized:     {name: "Oversized"},
	FaultWrongDigest:   {name: "WrongDigest", call: CallSign},
	FaultUnknownModule: {name: "UnknownModule"},
	FaultStaleBundle:   {name: "StaleBundle", call: CallTrustBundle},
	FaultForeignBundle: {name: "ForeignBundle", call: CallTrustBundle},
	FaultAbsent:        {name: "Absent"},
}

// FaultKinds returns every kind of fault, in a fixed order.
func FaultKinds() []FaultKind {
	all := make([]FaultKind, 0, len(faultKinds))
	for k := range len(faultKinds) {
		all = append(all, FaultKind(k+1))
	}
	return all
}

// String returns the name of the constant.
func (k FaultKind) String() string {
	if row, ok := faultKinds[k]; ok {
		return row.name
	}
	return fmt.Sprintf("FaultKind(%d)", uint8(k))
}

// Call returns the call to which the kind happens; CallAny: to all.
func (k FaultKind) Call() Call { return faultKinds[k].call }

// Fault declares a fault: its kind, its target and its time.
type Fault struct {
	// Kind is required.
	Kind FaultKind
	// Call selects the calls. Default: all to which the kind happens.
	Call Call
	// Module selects the calls for one module, "deviceID/moduleID". Default: all calls.
	Module string

	// After is how many matching requests pass before the first hit.
	After int
	// Times is how often the fault happens: 0 means once, negative means until it ends. FaultAbsent
	// has no number of times: it lasts until it ends.
	Times int
	// Probability, from 0 to 1, is the chance of each matching request to be a hit; 0 means always.
	Probability float64
	// For is the time from Inject to the fault's end; 0 means until it is removed. With it, all but
	// FaultAbsent need Times: negative means at each request until For is over.
	For time.Duration

	// Status is the status of FaultAnswerStatus, 200 to 599. Default: 500.
	Status int
	// Delay is the delay of FaultSlow. Default: none.
	Delay time.Duration
	// Bytes is what FaultNotHTTP sends, and the body of FaultGarbage.
	Bytes []byte
	// Size is the size of the body of FaultOversized, in bytes. Default: 16 MiB.
	Size int
}

const defaultOversize = 16 << 20

// Injected is a fault in force: see [Server.Inject]. It stays valid after the fault has ended.
type Injected struct {
	server *Server
	fault  Fault
	draws  *rand.Rand
	timer  *time.Timer // of FaultAbsent; nil = none

	// Guarded by Server.mu.
	seen  int // matching requests so far
	left  int // remaining hits; negative = no limit
	fired int
	until time.Time // zero = no end
}

// Check returns a [*fault.Error] for a fault that is unknown or cannot mean what it says; otherwise
// nil.
func (f *Fault) Check() error {
	row, ok := faultKinds[f.Kind]
	switch name := f.Kind.String(); {
	case !ok:
		return &fault.Error{Field: "Kind", Problem: "is the unknown " + name, Fix: "give one of FaultKinds"}
	case f.Status != 0 && (f.Status < 200 || f.Status > 599):
		return &fault.Error{Field: "Status", Problem: fmt.Sprintf("is %d", f.Status), Fix: "give 200 to 599"}
	case row.call != CallAny && f.Call != CallAny && f.Call != row.call:
		return &fault.Error{Field: "Call", Problem: "is not " + row.call.String() + ", to which alone " + name + " happens",
			Fix: "leave it out"}
	case f.Kind == FaultAbsent && (f.Times > 0 || f.After != 0 || f.Probability != 0):
		return &fault.Error{Field: "Kind", Problem: "is Absent, which lasts, with Times, After or Probability",
			Fix: "give For, or remove the fault"}
	case f.Kind != FaultAbsent && f.For > 0 && f.Times == 0:
		return &fault.Error{Field: "For", Problem: f.For.String() + " ends nothing: " + name + " happens once",
			Fix: "give Times too, negative for as long as For"}
	}
	return nil
}

// Inject puts a fault in force. It panics for a fault that cannot mean what it says: see
// [Fault.Check].
func (s *Server) Inject(f Fault) *Injected {
	if err := f.Check(); err != nil {
		panic("workload: Inject: " + err.Error())
	}
	f.Status = cmp.Or(f.Status, 500)
	f.Call = cmp.Or(f.Call, faultKinds[f.Kind].call)
	f.Times = cmp.Or(f.Times, 1)
	f.Size = cmp.Or(max(f.Size, 0), defaultOversize)
	f.Bytes = slices.Clone(f.Bytes)
	in := &Injected{server: s, fault: f, left: f.Times}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.injected++
	in.draws = rand.New(rand.NewPCG(s.seed, s.injected))
	if f.For > 0 {
		in.until = time.Now().Add(f.For)
	}
	s.faults = append(s.faults, in)
	if f.Kind == FaultAbsent {
		in.fired = 1
		if f.For > 0 && !s.closed {
			in.timer = time.AfterFunc(f.For, in.Remove)
		}
		s.reconcileLocked()
	}
	return in
}

// Fired returns how often the fault has happened; for FaultAbsent, 1.
func (i *Injected) Fired() int {
	i.server.mu.Lock()
	defer i.server.mu.Unlock()
	return i.fired
}

// WaitFired waits until the fault has happened at least n times. It fails when the context ends or
// the server is closed.
func (i *Injected) WaitFired(ctx context.Context, n int) error {
	return i.server.waitUntil(ctx, func() bool { return i.fired >= n })
}

// Remove ends the fault. A second Remove does nothing.
func (i *Injected) Remove() {
	s := i.server
	s.mu.Lock()
	defer s.mu.Unlock()
	i.stop()
	s.faults = slices.DeleteFunc(s.faults, func(other *Injected) bool { return other == i })
	if i.fault.Kind == FaultAbsent {
		s.reconcileLocked()
	}
}

func (i *Injected) stop() {
	if i.timer != nil {
		i.timer.Stop()
	}
}

// inForceLocked reports whether there is a fault of a kind that has no hits, only a time.
func (s *Server) inForceLocked(k FaultKind) bool {
	now := time.Now()
	return slices.ContainsFunc(s.faults, func(f *Injected) bool {
		return f.fault.Kind == k && (f.until.IsZero() || now.Before(f.until))
	})
}

// take counts a request for the faults of a kind, and returns the first that hits it; nil for none.
func (s *Server) take(k FaultKind, c Call, module string) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.faults = slices.DeleteFunc(s.faults, func(f *Injected) bool {
		return f.fault.Kind != FaultAbsent && (f.left == 0 || !f.until.IsZero() && !now.Before(f.until))
	})
	for _, in := range s.faults {
		f := &in.fault
		if f.Kind != k || f.Call != CallAny && f.Call != c || f.Module != "" && f.Module != module {
			continue
		}
		in.seen++
		if in.seen <= f.After || f.Probability > 0 && in.draws.Float64() >= f.Probability {
			continue
		}
		in.fired++
		s.wakeLocked()
		if in.left > 0 {
			in.left--
		}
		return f
	}
	return nil
}
