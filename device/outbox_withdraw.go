package device

// withdrawal is the result of withdraw.
type withdrawal uint8

const (
	withdrawn withdrawal = iota // it left the outbox; no hub has it
	unknown                     // it was handed over; it stays in the outbox without receipt
	resolved                    // the receipt has its result
)

// withdraw takes back the message of a Send whose caller gives up.
func (b *outbox) withdraw(tag uint16, seq uint64) withdrawal {
	b.mu.Lock()
	found := b.withdrawLocked(tag, seq)
	b.mu.Unlock()
	return found
}

func (b *outbox) withdrawLocked(tag uint16, seq uint64) withdrawal {
	s := &b.slots[tag]
	switch {
	case s.state == slotFree || s.seq != seq:
		return resolved
	case s.state == slotInFlight || s.resent:
		s.receipt, s.call = nil, false
		return unknown
	}
	s.receipt = nil
	b.totals.cancelled++
	b.removeLocked(int32(tag), nil)
	return withdrawn
}
