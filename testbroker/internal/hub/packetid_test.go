package hub

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// Zero is no packet id, and a waiting message keeps its own.
func TestPacketIDsOfC2DMessagesWrap(t *testing.T) {
	two := &QueuedC2D{C2DRecord: hubdata.C2DRecord{PacketID: 2}}
	q := &Queue{box: Commands, packetID: 65534, waiting: []*QueuedC2D{two}}
	require.Equal(t, []uint16{65535, 1, 3}, []uint16{q.NextIDLocked(), q.NextIDLocked(), q.NextIDLocked()})
}
