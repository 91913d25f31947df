package amqpscreen

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// A delivery in two transfers, and between them a whole one on another link: both are unsettled.
func TestADeliveryEndsAfterALaterOne(t *testing.T) {
	s := newTestScreen(t)
	s.sends(1, &wire.Attach{Name: "twin", Handle: 2, Role: wire.RoleReceiver})
	s.passes(1, &wire.Attach{Name: "twin", Handle: 12, Role: wire.RoleSender, Source: &wire.Source{}})
	s.sends(1, &wire.Flow{Handle: wire.Some(uint32(2)), DeliveryCount: wire.Some(uint32(0)),
		LinkCredit: wire.Some(uint32(10))})
	message := largeMessage(t, 1000, false)
	other := delivery(1, false)
	other.Handle = 12
	_, err := s.receive(encode(t, 1, delivery(0, true), message[:500]))
	require.NoError(t, err)
	s.passes(1, other, message...)
	_, err = s.receive(encode(t, 1, &wire.Transfer{Handle: 11}, message[500:]))
	require.NoError(t, err)
	_, _, n := s.local[1].in.settle(0, 1)
	require.Equal(t, 2, n)
}

// The end of a transfer belongs to its link's delivery, whatever other links of the session send in
// between. The library gets the outcome of each delivery that it waits for, and of no other: not of
// one that was sent settled, nor of one whose link is detached, complete or not.
func TestOutcomesOfInterleavedSendsPass(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { interleaveSends(t, rand.New(rand.NewPCG(seed, 15))) })
	}
}

func interleaveSends(t *testing.T, random *rand.Rand) {
	const telemetry, methods = 0, 2
	s := newTestScreen(t)
	s.sends(1, &wire.Attach{Name: "methods", Handle: methods, Role: wire.RoleSender, Source: &wire.Source{},
		Target: &wire.Target{}})
	s.passes(1, &wire.Attach{Name: "methods", Handle: 12, Role: wire.RoleReceiver, Source: &wire.Source{},
		Target: &wire.Target{}})
	var next uint32
	links := [...]uint32{telemetry, methods}
	sending := make(map[uint32]uint32) // delivery-ids by handle
	waits := make(map[uint32]uint32)   // handles by the delivery-ids of which the library waits for an outcome
	outcome := func(id uint32) bool {
		out, err := s.receive(encode(t, 1, &wire.Disposition{Role: wire.RoleReceiver, First: id, Settled: true,
			State: &wire.Accepted{}}, nil))
		require.NoError(t, err)
		return len(out) > 0
	}
	for range 30 {
		handle := links[random.IntN(len(links))]
		transfer := &wire.Transfer{Handle: handle, More: random.IntN(2) == 0}
		id, begun := sending[handle]
		if !begun {
			id = next
			next++
			transfer.DeliveryID, transfer.DeliveryTag = wire.Some(id), []byte{1}
			transfer.MessageFormat = wire.Some(uint32(0))
			sending[handle], waits[id] = id, handle
		}
		if !transfer.More {
			delete(sending, handle)
			if handle == methods {
				transfer.Settled = wire.Some(true)
				delete(waits, id)
			}
		}
		s.sent(encode(t, 1, transfer, []byte("x")))
		if id := random.Uint32N(next); random.IntN(5) == 0 {
			_, expected := waits[id]
			delete(waits, id)
			require.Equal(t, expected, outcome(id), "delivery %d", id)
		}
	}
	detached := []uint32{10, 12}[random.IntN(2)]
	s.passes(1, &wire.Detach{Handle: detached, Closed: true})
	for id := range next {
		handle, expected := waits[id]
		if expected && handle == methods && detached != 12 {
			continue // incomplete, and nobody waits: it will be sent settled
		}
		expected = expected && detached != handle+10
		require.Equal(t, expected, outcome(id), "delivery %d", id)
	}
}

// After the highest number, deliveries go on with zero.
func TestNumbersOfDeliveriesWrap(t *testing.T) {
	var d deliveries
	first := uint32(math.MaxUint32 - 99)
	for i := range uint32(200) {
		d.begin(first + i)
		if i%2 == 1 {
			_, _, n := d.settle(first+i, first+i)
			require.Equal(t, 1, n)
		}
	}
	low, high, n := d.settle(first, first+199)
	require.Equal(t, first, low)
	require.Equal(t, first+198, high)
	require.Equal(t, 100, n)
	require.Empty(t, d.bits)
}
