package hub

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// Zero is no packet id, and a waiting message keeps its own.
func TestPacketIDsOfC2DMessagesWrap(t *testing.T) {
	two := &QueuedC2D{C2DRecord: hubdata.C2DRecord{PacketID: 2}}
	q := &Queue{box: Commands, packetID: 0x7ffe, waiting: []*QueuedC2D{two}}
	require.Equal(t, []uint16{0x7fff, 1, 3}, []uint16{q.NextIDLocked(), q.NextIDLocked(), q.NextIDLocked()})
}

// C2D messages, messages to inputs and answers about certificates wait for their PUBACKs at the
// same time, so none gets a packet id of another kind.
func TestPacketIDsOfBoxesStayApart(t *testing.T) {
	c2d, inputs := &Queue{box: Commands, packetID: 0x7fff}, &Queue{box: Inputs, packetID: firstAnswerID - 1}
	require.Equal(t, uint16(1), c2d.NextIDLocked())
	require.Equal(t, uint16(0x8000), inputs.NextIDLocked())
}
