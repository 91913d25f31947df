package hub

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

func anyID(uint16) bool { return true }

func withID(id uint16) *QueuedC2D {
	return &QueuedC2D{C2DRecord: hubdata.C2DRecord{PacketID: id, State: hubdata.C2DInvisible}}
}

// Zero is no packet id, and a waiting message keeps its own.
func TestPacketIDsOfC2DMessagesWrap(t *testing.T) {
	two := withID(2)
	q := &Queue{box: Commands, packetID: 0x7ffe, waiting: []*QueuedC2D{two}}
	require.Equal(t, []uint16{0x7fff, 1, 3}, []uint16{q.NextIDLocked(anyID), q.NextIDLocked(anyID), q.NextIDLocked(anyID)})
}

// A client with a large window that acknowledges nothing uses up the packet ids. The end of a
// message frees its packet id at once, unless the client's session still has it.
func TestPacketIDsRunOut(t *testing.T) {
	q := &Queue{box: Commands}
	for id := range uint16(0x7fff) {
		q.waiting = append(q.waiting, withID(id+1))
	}
	require.Zero(t, q.NextIDLocked(anyID))
	q.waiting[2].State = hubdata.C2DCompleted
	require.Zero(t, q.NextIDLocked(func(id uint16) bool { return id != 3 }))
	require.Equal(t, uint16(3), q.NextIDLocked(anyID))
}

// C2D messages, messages to inputs and answers about certificates wait for their PUBACKs at the
// same time, so none gets a packet id of another kind.
func TestPacketIDsOfBoxesStayApart(t *testing.T) {
	c2d, inputs := &Queue{box: Commands, packetID: 0x7fff}, &Queue{box: Inputs, packetID: firstAnswerID - 1}
	require.Equal(t, uint16(1), c2d.NextIDLocked(anyID))
	require.Equal(t, uint16(0x8000), inputs.NextIDLocked(anyID))
}
