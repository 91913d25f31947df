package amqpscreen

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/testkit"
)

// The library dereferences the credit of a flow even if it is missing.
func TestAFlowWithoutCreditKeepsTheCredit(t *testing.T) {
	s := newTestScreen(t)
	s.passes(1, &wire.Flow{NextIncomingID: wire.Some(uint32(0)), Handle: wire.Some(uint32(10)),
		DeliveryCount: wire.Some(uint32(0)), LinkCredit: wire.Some(uint32(9))})
	s.send(4)
	f := s.rewritten(unhex(t, "00 00 00 15 02 00 00 01 00 53 13 c0 08 05 52 04 43 43 43 52 0a")).(*wire.Flow)
	require.Equal(t, wire.Some(uint32(0)), f.DeliveryCount)
	require.Equal(t, wire.Some(uint32(9)), f.LinkCredit)
	f = s.rewritten(encode(t, 1, &wire.Flow{NextIncomingID: wire.Some(uint32(4)), Handle: wire.Some(uint32(10)),
		DeliveryCount: wire.Some(uint32(4))}, nil)).(*wire.Flow)
	require.Equal(t, wire.Some(uint32(5)), f.LinkCredit, "four of nine were used")
	f = s.rewritten(encode(t, 1, &wire.Flow{NextIncomingID: wire.Some(uint32(4)), Handle: wire.Some(uint32(10)),
		DeliveryCount: wire.Some(uint32(1)), LinkCredit: wire.Some(uint32(2))}, nil)).(*wire.Flow)
	require.Equal(t, wire.Some(uint32(3)), f.LinkCredit, "less than what was used already is none: 1 + 3 = 4")
	s.passes(1, &wire.Flow{NextIncomingID: wire.Some(uint32(4)), Handle: wire.Some(uint32(10)),
		DeliveryCount: wire.Some(uint32(4)), LinkCredit: wire.Some(uint32(math.MaxUint32))})
	f = s.rewritten(unhex(t, "00 00 00 15 02 00 00 01 00 53 13 c0 08 05 52 04 43 43 43 52 0a")).(*wire.Flow)
	require.Equal(t, wire.Some(uint32(4)), f.DeliveryCount)
	require.Equal(t, wire.Some(uint32(math.MaxUint32)), f.LinkCredit)
	// when this side receives, the library needs no credit
	s.passes(1, &wire.Flow{NextIncomingID: wire.Some(uint32(4)), Handle: wire.Some(uint32(11))})
}

// The library visits each number of a range, and never stops at the largest number.
func TestADispositionNamesNoMoreThanWasSent(t *testing.T) {
	endless := func(first, last uint32) []byte {
		return encode(t, 1, &wire.Disposition{Role: wire.RoleReceiver, First: first, Last: wire.Some(last), Settled: true,
			State: &wire.Accepted{}}, nil)
	}
	s := newTestScreen(t)
	s.send(3)
	s.refuses(endless(0, math.MaxUint32), "disposition.last is 4294967295, which comes before first, 0")
	s = newTestScreen(t)
	s.send(3)
	ours := s.rewritten(endless(0, math.MaxInt32)).(*wire.Disposition)
	require.Equal(t, wire.Some(uint32(2)), ours.Last)
	for _, first := range []uint32{3, 1 << 30, 1 << 31, math.MaxUint32 - 1} {
		out, err := s.receive(endless(first, first+1))
		require.NoError(t, err)
		require.Empty(t, out, "they were not sent")
	}
	s = newTestScreen(t)
	s.send(200)
	s.passes(1, &wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: wire.Some(uint32(99)), Settled: true,
		State: &wire.Accepted{}})
	out, err := s.receive(endless(0, 99))
	require.NoError(t, err)
	require.Empty(t, out, "they are settled")
	s.passes(1, &wire.Disposition{Role: wire.RoleReceiver, First: 150, Settled: true})
	d := s.rewritten(endless(0, 150)).(*wire.Disposition)
	require.Equal(t, uint32(100), d.First)
	require.Equal(t, wire.Some(uint32(149)), d.Last)
	s.send(2000)
	s.refuses(encode(t, 1, &wire.Disposition{Role: wire.RoleReceiver, First: 151, Last: wire.Some(uint32(2199)),
		State: &wire.Accepted{}}, nil),
		"makes a range of 2049 unsettled deliveries")

	s = newTestScreen(t)
	for id := range uint32(2) {
		s.passes(1, delivery(math.MaxUint32-2+id, false))
	}
	s.sends(1, &wire.Disposition{Role: wire.RoleReceiver, First: math.MaxUint32 - 1, Settled: true})
	mine := &wire.Disposition{Role: wire.RoleSender, First: math.MaxUint32 - 2, Settled: true}
	s.passes(1, mine)
	out, err = s.receive(encode(t, 1, mine, nil))
	require.NoError(t, err)
	require.Empty(t, out)
	s.refuses(encode(t, 1, delivery(math.MaxUint32, false), nil), "transfer.delivery-id is 4294967295, the last number")

	s = newTestScreen(t)
	last := &wire.Transfer{DeliveryID: wire.Some(uint32(math.MaxUint32)), DeliveryTag: []byte{1},
		MessageFormat: wire.Some(uint32(0))}
	s.sent(encode(t, 1, last, []byte("x")))
	s.refuses(encode(t, 1, &wire.Disposition{Role: wire.RoleReceiver, First: math.MaxUint32, Settled: true}, nil),
		"no numbers for deliveries are left")
}

// The library would end the session for a disposition of a delivery whose link is detached.
func TestADispositionAfterTheDetachIsDropped(t *testing.T) {
	s := newTestScreen(t)
	s.send(3)
	s.passes(1, &wire.Detach{Handle: 10, Closed: true})
	out, err := s.receive(encode(t, 1, &wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: wire.Some(uint32(2)),
		Settled: true, State: &wire.Accepted{}}, nil))
	require.NoError(t, err)
	require.Empty(t, out)
}

// The library queues frames for an abandoned link.
func TestFlowsAreBounded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := newTestScreen(t)
		b := encode(t, 1, &wire.Flow{NextIncomingID: wire.Some(uint32(0)), Handle: wire.Some(uint32(11))}, nil)
		for range 3 {
			for range maxFlows {
				_, err := s.receive(b)
				require.NoError(t, err)
			}
			time.Sleep(flowTime + 1)
		}
		for range maxFlows {
			_, err := s.receive(b)
			require.NoError(t, err)
		}
		s.refuses(b, "flows while this side sends nothing on it")
	})
}

// With a delivery that is never settled, the memory for later numbers is bounded, however many of
// them are settled at once.
func TestUnsettledDeliveriesAreBounded(t *testing.T) {
	for _, next := range []uint32{maxSpan - 1, maxSpan, 2 * maxSpan, 1000 * maxSpan} {
		var d deliveries
		d.begin(5)
		d.begin(5 + next)
		require.LessOrEqual(t, len(d.bits), maxSpan/64+1, "next %d", next)
		low, high, n := d.settle(0, 5+next)
		require.Equal(t, 5+next, high)
		require.LessOrEqual(t, int(high-low), maxSpan)
		require.GreaterOrEqual(t, n, 1)
	}
}
