package amqp_test

import (
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// sizes is a server that adds up the sizes of messages.
type sizes struct {
	echo
	messages, bytes int
}

func (s *sizes) Message(_ *amqp.Link, d amqp.Delivery) error {
	s.messages, s.bytes = s.messages+1, s.bytes+len(d.Payload)
	return nil
}

// frames is a client that sends each frame with one write and takes whatever it gets.
type frames struct {
	all  [][]byte
	room int // for the latest read
}

func (*frames) Write(p []byte) (int, error) { return len(p), nil }

func (f *frames) Read(p []byte) (int, error) {
	f.room = len(p)
	for len(f.all) > 0 && len(f.all[0]) == 0 {
		f.all = f.all[1:]
	}
	if len(f.all) == 0 {
		return 0, io.EOF
	}
	n := copy(p, f.all[0])
	f.all[0] = f.all[0][n:]
	return n, nil
}

func (f *frames) add(tb testing.TB, p wire.Performative, payload []byte) {
	b, err := wire.AppendFrame(nil, 0, p, payload)
	require.NoError(tb, err)
	f.all = append(f.all, b)
}

// largeMessages has a client send messages in two frames of 60,000 bytes and a small one, and then
// keep-alives. It returns the bytes allocated meanwhile.
func largeMessages(tb testing.TB, messages int) (f *frames, allocated uint64) {
	head := wire.ProtocolHeader(wire.ProtocolAMQP)
	f = &frames{all: [][]byte{head[:]}}
	f.add(tb, &wire.Open{ContainerID: "c", Hostname: "h", MaxFrameSize: 64 << 10}, nil)
	f.add(tb, begin[1], nil)
	f.add(tb, sender, nil)
	for i := range messages {
		for part, size := range []int{60_000, 60_000, 5_000} {
			f.add(tb, &wire.Transfer{Handle: 1, DeliveryID: wire.Some(uint32(i)), DeliveryTag: []byte("t"),
				Settled: wire.Some(true), More: part < 2}, make([]byte, size))
		}
	}
	for range 2 {
		f.add(tb, nil, nil)
	}
	s := new(sizes)
	c := amqp.NewConn(f, amqp.Config{ContainerID: "s", MaxFrameSize: 64 << 10, ChannelMax: 1, HandleMax: 9,
		SessionWindow: 1 << 20}, s)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.ErrorIs(tb, c.Serve(), io.EOF)
	runtime.ReadMemStats(&after)
	require.Equal(tb, messages, s.messages)
	require.Equal(tb, messages*125_000, s.bytes)
	return f, after.TotalAlloc - before.TotalAlloc
}

// Frames of large messages are read into one buffer, and each message is put together in one.
// Keep-alives free the buffer.
func TestLargeMessagesShareABuffer(t *testing.T) {
	f, allocated := largeMessages(t, 100)
	require.Less(t, allocated/100, uint64(145_000), "bytes for a message of 125,000")
	require.LessOrEqual(t, f.room, 32<<10, "after two keep-alives")
}
