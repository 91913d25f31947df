package workload

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Call is a call of the API.
type Call uint8

// The calls. CallAny selects all of them, in a [Fault] and in [Server.Count].
const (
	CallAny Call = iota
	CallSign
	CallTrustBundle
	CallManifestTrustBundle
	CallEncrypt
	CallDecrypt
	CallIdentityCertificate
	CallServerCertificate
	CallModules
)

var callNames = [...]string{
	CallAny: "AnyCall", CallSign: "Sign", CallTrustBundle: "TrustBundle", CallManifestTrustBundle: "ManifestTrustBundle",
	CallEncrypt: "Encrypt", CallDecrypt: "Decrypt", CallIdentityCertificate: "IdentityCertificate",
	CallServerCertificate: "ServerCertificate", CallModules: "Modules",
}

// Calls returns every call of the API, in a fixed order, without CallAny.
func Calls() []Call {
	all := make([]Call, 0, len(callNames))
	for c := range callNames[1:] {
		all = append(all, Call(c+1))
	}
	return all
}

// String returns the name of the constant.
func (c Call) String() string {
	if int(c) < len(callNames) {
		return callNames[c]
	}
	return fmt.Sprintf("Call(%d)", uint8(c))
}

// A Record is a request that the server has handled, whether well or not.
type Record struct {
	// Call is CallAny for a request that is no call of the API.
	Call Call
	// Method and Path are those of the request; the path is undecoded and has no query.
	Method, Path string
	// Host is the request's header of that name.
	Host string
	// APIVersion is the request's api-version.
	APIVersion string
	// Module is the called module, "deviceID/moduleID"; empty for other calls and unknown modules.
	Module string
	// Status is the answer's status; 0 when a fault has left the request without one.
	Status int
	// Faults are the kinds of the faults that happened to the request, in order.
	Faults []FaultKind
	// Time is when the request arrived, by the clock of the process.
	Time time.Time
}

// maxLog is how many records a server keeps.
const maxLog = 1000

// Log returns the newest requests, up to 1,000, in the order of their answers. A client that has
// its answer, or whose connection was cut, finds its request in the log.
func (s *Server) Log() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Count returns how many requests for a call have ended; for [CallAny], how many of any kind,
// including those that are no call of the API.
func (s *Server) Count(c Call) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countLocked(c)
}

func (s *Server) countLocked(c Call) int {
	if c != CallAny {
		return s.counts[c]
	}
	n := 0
	for _, calls := range s.counts {
		n += calls
	}
	return n
}

// WaitCount waits until [Server.Count] is at least n. It fails when the context ends or the server
// is closed.
func (s *Server) WaitCount(ctx context.Context, c Call, n int) error {
	return s.waitUntil(ctx, func() bool { return s.countLocked(c) >= n })
}

// waitUntil waits until ok, which is called with the lock held, returns true.
func (s *Server) waitUntil(ctx context.Context, ok func() bool) error {
	for {
		s.mu.Lock()
		done, closed, changed := ok(), s.closed, s.changed
		s.mu.Unlock()
		switch {
		case done:
			return nil
		case closed:
			return errClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wakeLocked makes waitUntil check again.
func (s *Server) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// record adds a request to the log, once.
func (s *Server) record(q *request) {
	if q.recorded {
		return
	}
	q.recorded = true
	r := q.record
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wakeLocked()
	s.counts[r.Call]++
	if len(s.log) == maxLog {
		s.log = slices.Delete(s.log, 0, 1)
	}
	s.log = append(s.log, r)
}
