package mqttfront_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/internal/mqttfront"
)

func TestDropDuringPublishInPieces(t *testing.T) {
	body := "a body that is long enough to be torn at many places, and longer than 127 bytes with its topic, so " +
		"that the length takes two"
	rest := append([]byte{0, byte(len(events))}, events+"\x00\x01"+body...)
	p := append([]byte{0x32, byte(len(rest)&0x7f) | 0x80, byte(len(rest) >> 7)}, rest...)
	for cut := 1; cut < len(p); cut++ {
		first, passed := mqttfront.Packets([][]byte{{0xc0, 0}, p[:cut], p[cut:], {0xc0, 0}}, 2)
		require.Equal(t, []byte{0xc0, 0x32}, first)
		require.Greater(t, passed, 2)
		require.Less(t, passed, 2+len(p))
	}
}
