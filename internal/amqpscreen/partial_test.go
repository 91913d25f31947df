package amqpscreen

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// scriptedLink is a link on which a test sends deliveries in several transfers, and how the library
// would see it.
type scriptedLink struct {
	handle   uint32
	sending  []byte // the rest of the message; nil: none
	message  []byte // all of it
	settled  bool
	id       uint32
	finished []string // what the library must have received: bodies, or "replaced"

	more     bool
	got      []byte
	gotBy    bool // a transfer of the delivery said that it is settled
	received []string
}

// For any sizes of transfers, on links that take turns, the library gets each message whole, or a
// stand-in, in as many transfers as the peer sent, none larger than max-frame-size. Only those that
// an incomplete message needs are held back. Between flows of both sides, the library's
// next-incoming-id counts the transfers that it got, and the unsettled deliveries are those that
// ended so.
func TestTransfersStayInStep(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { stayInStep(t, rand.New(rand.NewPCG(seed, 14))) })
	}
}

func stayInStep(t *testing.T, random *rand.Rand) {
	const limit = 400_000
	s := newTestScreen(t)
	var links [3]*scriptedLink
	for i := range links {
		name, mine, peers := fmt.Sprint("link", i), uint32(2+i), []uint32{0, 200, 70_000}[i]
		s.sends(1, &wire.Attach{Name: name, Handle: mine, Role: wire.RoleReceiver, MaxMessageSize: limit})
		s.passes(1, &wire.Attach{Name: name, Handle: peers, Role: wire.RoleSender, Source: &wire.Source{}})
		s.sends(1, &wire.Flow{Handle: wire.Some(mine), DeliveryCount: wire.Some(uint32(0)),
			LinkCredit: wire.Some(uint32(1000))})
		links[i] = &scriptedLink{handle: peers}
	}
	id := []uint32{0, 250, 1 << 20}[random.IntN(3)]
	firstID := id
	unsettled := make(map[uint32]bool)
	transferID := []uint32{0, math.MaxUint32 - 20}[random.IntN(2)] // of the first transfer
	sent, passed := 0, 0
	for range 150 {
		if random.IntN(3) == 0 {
			next := exchangeFlows(t, s, random, transferID+uint32(sent))
			require.Equal(t, transferID+uint32(passed), next, "the library's next-incoming-id")
		}
		l := links[random.IntN(len(links))]
		p := &wire.Transfer{Handle: l.handle}
		if l.message == nil {
			l.message = largeMessage(t, random.IntN([]int{10, 1000, 100_000, 500_000}[random.IntN(4)]), random.IntN(4) == 0)
			l.sending, l.id, l.settled = l.message, id, false
			p.DeliveryID, p.MessageFormat = wire.Some(id), wire.Some(uint32(random.IntN(2)*300))
			p.DeliveryTag = make([]byte, 1+random.IntN(32))
			id++
		}
		if random.IntN(10) == 0 {
			p.Settled, l.settled = wire.Some(true), true
		}
		p.More, p.Aborted = true, random.IntN(30) == 0
		room := MaxFrame - len(encode(t, 1, p, nil))
		n := min(len(l.sending), []int{0, 1, 500, 30_000, room, room, room}[random.IntN(7)])
		part := l.sending[:n]
		l.sending = l.sending[n:]
		p.More = len(l.sending) > 0 || random.IntN(3) == 0
		out, err := s.receive(encode(t, 1, p, part))
		require.NoError(t, err)
		sent++
		for ; len(out) > 0; passed++ {
			out = passTransfer(t, links[:], out)
		}
		if p.More && !p.Aborted {
			continue
		}
		if !p.Aborted {
			l.finished = append(l.finished, expected(l, limit))
			unsettled[l.id] = !l.settled
		}
		l.message = nil
		require.Equal(t, l.finished, l.received)
		require.False(t, l.more)
	}
	held := 0
	for _, l := range links {
		if l.message != nil {
			held += (len(l.message)-len(l.sending))/(MaxFrame-100) + 1
		}
	}
	require.LessOrEqual(t, sent-passed, held)
	for _, l := range links { // the held transfers are passed before the detach
		out, err := s.receive(encode(t, 1, &wire.Detach{Handle: l.handle, Closed: true}, nil))
		require.NoError(t, err)
		passed += count(t, out) - 1
	}
	require.Equal(t, sent, passed)
	require.Equal(t, transferID+uint32(sent), exchangeFlows(t, s, random, transferID+uint32(sent)))
	require.Zero(t, s.partial)
	for ; firstID < id; firstID++ {
		_, _, n := s.local[1].in.settle(firstID, firstID)
		require.Equal(t, unsettled[firstID], n == 1, "delivery %d", firstID)
	}
}

// exchangeFlows sends a flow of each side at random, and then one of the peer. It returns what the
// library takes from that as its next-incoming-id.
func exchangeFlows(t *testing.T, s *testScreen, random *rand.Rand, nextOutgoing uint32) uint32 {
	if random.IntN(2) == 0 {
		s.sends(1, &wire.Flow{NextIncomingID: wire.Some(nextOutgoing), IncomingWindow: 5000, Handle: wire.Some(uint32(2)),
			DeliveryCount: wire.Some(uint32(0)), LinkCredit: wire.Some(uint32(1000))})
	}
	f := &wire.Flow{NextIncomingID: wire.Some(uint32(0)), IncomingWindow: 5000, NextOutgoingID: nextOutgoing,
		OutgoingWindow: 5000}
	switch random.IntN(4) {
	case 0: // credit for this side
		f.Handle, f.DeliveryCount, f.LinkCredit = wire.Some(uint32(10)), wire.Some(uint32(0)), wire.Some(uint32(9))
	case 1:
		f.NextIncomingID.OK = false
	}
	out, err := s.receive(encode(t, 1, f, nil))
	require.NoError(t, err)
	frame, n, err := wire.Split(out, MaxFrame)
	require.NoError(t, err)
	require.Equal(t, len(out), n)
	p, _, err := frame.Performative()
	require.NoError(t, err)
	passed := *p.(*wire.Flow)
	next := passed.NextOutgoingID
	passed.NextOutgoingID, f.NextIncomingID = nextOutgoing, wire.Some(uint32(0))
	require.Equal(t, f, &passed, "nothing else has changed")
	return next
}

// largeMessage returns a message with a body of n bytes; bad: one that the library must not get.
func largeMessage(t *testing.T, n int, bad bool) []byte {
	b, err := wire.AppendMessage(nil, &wire.Message{Data: [][]byte{bytes.Repeat([]byte{'x'}, n)}})
	require.NoError(t, err)
	if bad {
		return append(b, poison...)
	}
	return b
}

func expected(l *scriptedLink, limit int) string {
	if len(l.message) > limit || checkMessage(l.message) != nil {
		return fmt.Sprint("replaced ", l.settled)
	}
	return fmt.Sprint(len(l.message), " ", l.settled)
}

// passTransfer passes the first frame of b to the library's side of its link, and returns the rest.
func passTransfer(t *testing.T, links []*scriptedLink, b []byte) []byte {
	f, n, err := wire.Split(b, MaxFrame)
	require.NoError(t, err)
	perf, payload, err := f.Performative()
	require.NoError(t, err)
	p := perf.(*wire.Transfer)
	for _, l := range links {
		if l.handle != p.Handle {
			continue
		}
		if !l.more {
			require.Equal(t, wire.Some(l.id), p.DeliveryID)
			l.got, l.gotBy = nil, false
		} else {
			require.False(t, p.DeliveryID.OK || p.MessageFormat.OK || p.DeliveryTag != nil)
		}
		l.got = append(l.got, payload...)
		l.gotBy = l.gotBy || p.Settled.V
		l.more = p.More && !p.Aborted
		if p.More || p.Aborted {
			break
		}
		m := new(amqp.Message)
		require.NoError(t, m.UnmarshalBinary(l.got))
		what := fmt.Sprint(len(l.got))
		if ReplacedMessage(m) != nil {
			what = "replaced"
		}
		l.received = append(l.received, fmt.Sprint(what, " ", l.gotBy))
	}
	return b[n:]
}
