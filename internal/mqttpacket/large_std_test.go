//go:build !tinygo

package mqttpacket_test

import (
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/internal/mqttpacket"
)

// Vectors larger than a board's RAM.

func TestEncodingOfLargePackets(t *testing.T) {
	checkSent(t, mqttpacket.Next, []goodPacket{
		{"PUBLISH, length of 2 bytes, the most", "2.2.3", "32 FF7F 0001't' 0001" + strings.Repeat("00", 16378),
			publish(mqttpacket.Outgoing{QoS: 1},
				"t", 1, zeros(16378))},
		{"PUBLISH, length of 3 bytes, the least", "2.2.3", "32 808001 0001't' 0001" + strings.Repeat("00", 16379),
			publish(mqttpacket.Outgoing{QoS: 1},
				"t", 1, zeros(16379))},
	})
}

func TestTooLongPacketsAreNotEncoded(t *testing.T) {
	long := strings.Repeat("x", mqttpacket.MaxText+1)
	checkRefused(t, []badPacket{
		{"a client id too long", "1.5.3", mqttpacket.ErrText, connect(mqttpacket.Greeting{ClientID: long})},
		{"a user name too long", "1.5.3", mqttpacket.ErrText, connect(mqttpacket.Greeting{UserName: long})},
		{"a password too long", "3.1.3.5", mqttpacket.ErrText, connect(mqttpacket.Greeting{UserName: "u", Password: long})},
		{"a will too long", "3.1.3.3", mqttpacket.ErrText,
			connect(mqttpacket.Greeting{Will: &mqttpacket.Will{Topic: []byte("t"), Body: []byte(long)}})},
		{"SUBSCRIBE to a filter too long", "1.5.3", mqttpacket.ErrText, func(dst []byte) ([]byte, error) {
			return mqttpacket.AppendSubscribe(dst, 1, mqttpacket.Filter{Topic: long, QoS: 1})
		}},
	})
}
