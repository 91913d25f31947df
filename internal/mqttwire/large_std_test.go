//go:build !tinygo

package mqttwire_test

import (
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/internal/mqttwire"
)

// Vectors larger than a board's RAM.

func TestEncodingOfLargePackets(t *testing.T) {
	checkSent(t, mqttwire.Next, []goodPacket{
		{"PUBLISH, length of 2 bytes, the most", "2.2.3", "32 FF7F 0001't' 0001" + strings.Repeat("00", 16378),
			publish(mqttwire.Outgoing{QoS: 1},
				"t", 1, zeros(16378))},
		{"PUBLISH, length of 3 bytes, the least", "2.2.3", "32 808001 0001't' 0001" + strings.Repeat("00", 16379),
			publish(mqttwire.Outgoing{QoS: 1},
				"t", 1, zeros(16379))},
	})
}

func TestTooLongPacketsAreNotEncoded(t *testing.T) {
	long := strings.Repeat("x", mqttwire.MaxText+1)
	checkRefused(t, []badPacket{
		{"a client id too long", "1.5.3", mqttwire.ErrText, connect(mqttwire.Greeting{ClientID: long})},
		{"a user name too long", "1.5.3", mqttwire.ErrText, connect(mqttwire.Greeting{UserName: long})},
		{"a password too long", "3.1.3.5", mqttwire.ErrText, connect(mqttwire.Greeting{UserName: "u", Password: long})},
		{"a will too long", "3.1.3.3", mqttwire.ErrText,
			connect(mqttwire.Greeting{Will: &mqttwire.Will{Topic: []byte("t"), Body: []byte(long)}})},
		{"SUBSCRIBE to a filter too long", "1.5.3", mqttwire.ErrText, func(dst []byte) ([]byte, error) {
			return mqttwire.AppendSubscribe(dst, 1, mqttwire.Filter{Topic: long, QoS: 1})
		}},
	})
}
