package amqpscreen

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// withoutID is a flow whose next-incoming-id is null. incoming-window is 8.
const withoutID = "00 00 00 13 02 00 00 01 00 53 13 c0 06 04 40 52 08 43 43"

// completed returns next-incoming-id of a flow that the library gets.
func (s *testScreen) completed(b []byte) uint32 {
	s.t.Helper()
	f := s.rewritten(b).(*wire.Flow)
	require.True(s.t, f.NextIncomingID.OK)
	return f.NextIncomingID.V
}

// The library ends the session for a flow without next-incoming-id.
func TestAFlowWithoutNextIncomingIDIsCompleted(t *testing.T) {
	s := newTestScreen(t)
	f := s.rewritten(unhex(t, withoutID)).(*wire.Flow)
	require.Equal(t, &wire.Flow{NextIncomingID: wire.Some(uint32(0)), IncomingWindow: 8}, f)
	s.send(3)
	require.EqualValues(t, 3, s.completed(unhex(t, withoutID)))

	// a message in several transfers counts each of them, also when it is not complete
	s.sent(encode(t, 1, delivery(3, true), []byte("a")))
	require.EqualValues(t, 4, s.completed(unhex(t, withoutID)))
	s.sent(encode(t, 1, &wire.Transfer{More: true}, []byte("b")))
	s.sent(encode(t, 1, &wire.Transfer{}, []byte("c")))
	require.EqualValues(t, 6, s.completed(unhex(t, withoutID)))

	// so does an aborted one, and one on a link that the peer detaches
	s.sent(encode(t, 1, delivery(4, true), []byte("a")))
	s.sent(encode(t, 1, &wire.Transfer{Aborted: true}, nil))
	s.passes(1, &wire.Detach{Handle: 10, Closed: true})
	s.sent(encode(t, 1, delivery(5, false), []byte("it crossed the detach")))
	require.EqualValues(t, 9, s.completed(unhex(t, withoutID)))

	// the fields of a link stay as they are
	s.sends(1, &wire.Attach{Name: "again", Handle: 0, Role: wire.RoleSender, Source: &wire.Source{},
		Target: &wire.Target{}})
	s.passes(1, &wire.Attach{Name: "again", Handle: 10, Role: wire.RoleReceiver, Source: &wire.Source{},
		Target: &wire.Target{}})
	f = s.rewritten(encode(t, 1, &wire.Flow{IncomingWindow: 7, NextOutgoingID: 4, OutgoingWindow: 5,
		Handle: wire.Some(uint32(10)), DeliveryCount: wire.Some(uint32(0)), LinkCredit: wire.Some(uint32(6)),
		Echo: true}, nil)).(*wire.Flow)
	require.Equal(t, &wire.Flow{NextIncomingID: wire.Some(uint32(9)), IncomingWindow: 7, NextOutgoingID: 4,
		OutgoingWindow: 5, Handle: wire.Some(uint32(10)), DeliveryCount: wire.Some(uint32(0)),
		LinkCredit: wire.Some(uint32(6)), Echo: true}, f)
}

// Each session has its own count, from 0, also one on the channel of a session that has ended.
func TestEachSessionCountsItsTransfers(t *testing.T) {
	s := newTestScreen(t)
	s.send(5)
	begin := func(own, peer uint16) {
		s.sends(own, &wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000})
		s.passes(peer, &wire.Begin{RemoteChannel: wire.Some(own), IncomingWindow: 5000, OutgoingWindow: 5000})
	}
	begin(2, 7) // the peer's channel differs
	other := unhex(t, withoutID)
	other[7] = 7
	require.EqualValues(t, 0, s.completed(other))
	require.EqualValues(t, 5, s.completed(unhex(t, withoutID)))
	s.passes(1, &wire.End{})
	s.sends(1, &wire.End{})
	begin(1, 1)
	require.EqualValues(t, 0, s.completed(unhex(t, withoutID)))
}

// The numbers of transfers wrap.
func TestTheCountOfTransfersWraps(t *testing.T) {
	s := newTestScreen(t)
	s.local[1].transfers = math.MaxUint32
	require.EqualValues(t, math.MaxUint32, s.completed(unhex(t, withoutID)))
	s.send(1)
	require.EqualValues(t, 0, s.completed(unhex(t, withoutID)))
	s.passes(1, &wire.Flow{NextIncomingID: wire.Some(uint32(math.MaxUint32)), IncomingWindow: 1})
	s.send(1)
	require.EqualValues(t, 0, s.completed(encode(t, 1, &wire.Flow{NextIncomingID: wire.Some(uint32(math.MaxUint32)),
		IncomingWindow: 1}, nil)), "0 + 1 - 1 is none")
}

// The library would take a window that ends before the transfers that were sent for one of nearly
// 2^32 transfers.
func TestAWindowThatShrinksIsClosed(t *testing.T) {
	s := newTestScreen(t)
	s.send(10)
	for _, c := range []struct{ next, window, want uint32 }{
		{10, 0, 10}, {10, math.MaxUint32, 10}, {5, 5, 5}, {5, 6, 5}, {0, 10, 0}, // nothing wrong
		{5, 4, 6}, {5, 0, 10}, {0, 0, 10}, {0, 9, 1}, // behind
		{math.MaxUint32, 0, 10}, {math.MaxUint32, 10, 0}, {math.MaxUint32, 11, math.MaxUint32}, // long ago
		{11, 0, 11}, {1 << 30, 0, 1 << 30}, // ahead: the peer's own harm
	} {
		flow := &wire.Flow{NextIncomingID: wire.Some(c.next), IncomingWindow: c.window}
		if c.want == c.next {
			s.passes(1, flow)
			continue
		}
		require.Equal(t, c.want, s.completed(encode(t, 1, flow, nil)), "%+v", c)
		require.Zero(t, c.want+c.window-10, "the rest of the window")
	}
}
