package amqpclient

import "sync"

const (
	// smallBuffer and largeBuffer are the sizes of buffers. A large one holds HighWater and two
	// batches of telemetry.
	smallBuffer = 16 << 10
	largeBuffer = HighWater + 2*24<<10
)

// Pools of buffers. All connections share them: an idle connection has none.
var (
	smallBuffers = sync.Pool{New: func() any { return new([smallBuffer]byte) }}
	largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}
	readBuffers  = sync.Pool{New: func() any { return new([MaxFrame]byte) }}
)

// room returns b, or a larger buffer with its content, with room for n bytes more. Beyond
// largeBuffer append has to grow it.
func room(b []byte, n int) []byte {
	need := len(b) + n
	var larger []byte
	switch {
	case need <= cap(b) || need > largeBuffer:
		return b
	case need <= smallBuffer:
		larger = smallBuffers.Get().(*[smallBuffer]byte)[:0]
	default:
		larger = largeBuffers.Get().(*[largeBuffer]byte)[:0]
	}
	larger = append(larger, b...)
	release(b)
	return larger
}

// release returns a buffer to its pool.
func release(b []byte) {
	switch cap(b) {
	case smallBuffer:
		smallBuffers.Put((*[smallBuffer]byte)(b[:smallBuffer]))
	case largeBuffer:
		largeBuffers.Put((*[largeBuffer]byte)(b[:largeBuffer]))
	}
}
