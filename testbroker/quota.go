package testbroker

import (
	"errors"
	"time"
)

// ErrQuota is the cause of a connection's end, or of a refusal, when the messages of the day are
// used up.
var ErrQuota = errors.New("testbroker: quota of messages is used up")

// quotaStep is the size in bytes that counts as one message.
const quotaStep = 4 << 10

// exhausted returns a quota of an identity that is used up, nil if there is none.
func (f *faults) exhausted(id identity, now time.Time) *Injected {
	if f.count.Load() == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.quotasLocked(id, now) {
		if in.used >= in.fault.Limit {
			return in
		}
	}
	return nil
}

// spend counts a message of the given size for all quotas of an identity.
func (f *faults) spend(id identity, now time.Time, size int) {
	if f.count.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.quotasLocked(id, now) {
		in.used += max(1, (size+quotaStep-1)/quotaStep)
	}
}

// quotasLocked returns the quotas of an identity, as they are on the present day.
func (f *faults) quotasLocked(id identity, now time.Time) []*Injected {
	const day = 24 * 60 * 60
	today := now.Unix() / day
	var all []*Injected
	for _, in := range f.activeLocked() {
		if in.fault.Kind == Quota && in.begun && id.matches(in.fault.Device) {
			if in.day != today {
				in.day, in.used = today, 0
			}
			all = append(all, in)
		}
	}
	return all
}
