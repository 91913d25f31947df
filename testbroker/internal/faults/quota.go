package faults

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// ErrQuota is the cause of a connection's end, or of a refusal, when the daily message quota is
// exhausted.
var ErrQuota = errors.New("testbroker: quota of messages is used up")

// QuotaStep is the size in bytes of one counted message.
const QuotaStep = 4 << 10

// Exhausted returns an exhausted quota of an identity; nil if there is none.
func (f *Faults) Exhausted(id identity.Identity, now time.Time) *Injected {
	if f.count.Load() == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.quotasLocked(id, now) {
		if in.used >= in.Fault.Limit {
			return in
		}
	}
	return nil
}

// Spend counts a message of the given size for all quotas of an identity.
func (f *Faults) Spend(id identity.Identity, now time.Time, size int) {
	if f.count.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.quotasLocked(id, now) {
		in.used += max(1, (size+QuotaStep-1)/QuotaStep)
	}
}

// quotasLocked returns the quotas of an identity, reset if a new day has begun.
func (f *Faults) quotasLocked(id identity.Identity, now time.Time) []*Injected {
	const day = 24 * 60 * 60
	today := now.Unix() / day
	var all []*Injected
	for _, in := range f.activeLocked() {
		if in.Fault.Kind == fault.Quota && in.begun && id.Matches(in.Fault.Device) {
			if in.day != today {
				in.day, in.used = today, 0
			}
			all = append(all, in)
		}
	}
	return all
}
