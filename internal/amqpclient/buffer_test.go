package amqpclient

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// A buffer keeps its content when it grows, and is not used after its release.
func TestBuffers(t *testing.T) {
	for _, step := range []int{1, 1000, smallBuffer, smallBuffer + 1, largeBuffer, largeBuffer + 1} {
		var b, want []byte
		for i := 0; len(b) <= 2*largeBuffer && i < 3000; i++ {
			p := bytes.Repeat([]byte{byte(i)}, step)
			b, want = append(room(b, len(p)), p...), append(want, p...)
		}
		other := room(nil, 10)
		other = append(other, "0123456789"...)
		require.True(t, bytes.Equal(want, b), "steps of %d", step)
		release(b)
		require.Equal(t, "0123456789", string(other))
		release(other)
	}
}
