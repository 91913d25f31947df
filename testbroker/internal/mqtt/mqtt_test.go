package mqtt_test

import (
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// TestDecodeAgreesWithAnotherCodec decodes the packets of another broker's tests.
func TestDecodeAgreesWithAnotherCodec(t *testing.T) {
	n := 0
	for typ, all := range packets.TPacketData {
		for _, p := range all {
			version := byte(mqtt.V311)
			if p.Packet != nil && p.Packet.ProtocolVersion == 5 {
				version = mqtt.V5
			}
			if p.Desc == "deny publishing to $SYS topics" { // its length of the topic is wrong
				continue
			}
			if p.FailFirst != nil || p.Packet == nil || len(p.RawBytes) < 2 || p.Group == "encode" || len(p.RawBytes) > 129 {
				continue
			}
			first, body := p.RawBytes[0], p.RawBytes[2:]
			var err error
			switch typ {
			case packets.Publish:
				var k *mqtt.PublishPacket
				if k, err = mqtt.DecodePublish(version, first, body); err == nil {
					require.Equal(t, []any{p.Packet.TopicName, string(p.Packet.Payload), p.Packet.PacketID},
						[]any{k.Topic, string(k.Payload), k.ID}, p.Desc)
				}
			case packets.Puback, packets.Pubrec, packets.Pubrel, packets.Pubcomp:
				var a mqtt.AckPacket
				if a, err = mqtt.DecodeAck(version, first, body); err == nil {
					require.Equal(t, []any{p.Packet.PacketID, p.Packet.ReasonCode}, []any{a.ID, a.Code}, p.Desc)
				}
			case packets.Subscribe, packets.Unsubscribe:
				var s mqtt.SubscribePacket
				if s, err = mqtt.DecodeSubscribe(version, first, body); err == nil {
					require.Len(t, s.Filters, len(p.Packet.Filters), p.Desc)
					for i, f := range p.Packet.Filters {
						require.Equal(t, []any{f.Filter, f.Qos, f.NoLocal, f.RetainHandling}, []any{s.Filters[i].Name,
							s.Filters[i].QoS, s.Filters[i].NoLocal, s.Filters[i].RetainHandling}, p.Desc)
					}
				}
			case packets.Disconnect, packets.Auth:
				var e mqtt.EndPacket
				if e, err = mqtt.DecodeEnd(version, first, body); err == nil {
					require.Equal(t, p.Packet.ReasonCode, e.Code, p.Desc)
				}
			default:
				continue
			}
			t.Logf("%s %s: %v", packets.PacketNames[typ], p.Desc, err)
			if err == nil {
				n++
			}
		}
	}
	require.Greater(t, n, 20)
}

// TestViolationsHaveTheirReasonCodes decodes packets that the standard forbids.
func TestViolationsHaveTheirReasonCodes(t *testing.T) {
	const malformed, violation = mqtt.Malformed, mqtt.ProtocolError
	connect := func(s string) []byte { return append([]byte("\x00\x04MQTT\x05"), s...) }
	for name, row := range map[string]struct {
		typ  byte
		body []byte
		code byte
	}{
		"reserved flag":         {0x10, connect("\x01\x00\x00\x00\x00\x01a"), malformed},
		"will QoS 3":            {0x10, connect("\x1c\x00\x00\x00\x00\x01a"), malformed},
		"retain without a will": {0x10, connect("\x20\x00\x00\x00\x00\x01a"), malformed},
		"session expiry twice": {0x10, connect("\x02\x00\x00\x0a\x11\x00\x00\x00\x01\x11\x00\x00\x00\x01\x00\x00"),
			violation},
		"receive maximum 0":           {0x10, connect("\x02\x00\x00\x03\x21\x00\x00\x00\x00"), violation},
		"flag of 2":                   {0x10, connect("\x02\x00\x00\x02\x17\x02\x00\x00"), violation},
		"unknown property":            {0x10, connect("\x02\x00\x00\x02\x7e\x02\x00\x00"), malformed},
		"property of another packet":  {0x10, connect("\x02\x00\x00\x02\x01\x01\x00\x00"), violation},
		"bytes behind the packet":     {0x10, connect("\x02\x00\x00\x00\x00\x00x"), malformed},
		"client id that is not text":  {0x10, connect("\x02\x00\x00\x00\x00\x01\xff"), malformed},
		"client id with U+0000":       {0x10, connect("\x02\x00\x00\x00\x00\x01\x00"), malformed},
		"properties that end early":   {0x10, connect("\x02\x00\x00\x7f"), malformed},
		"length in a longer form":     {0x10, connect("\x02\x00\x00\x80\x00\x00\x00"), malformed},
		"publish with QoS 3":          {0x36, []byte("\x00\x01a\x00\x01\x00"), malformed},
		"publish with QoS 0 and DUP":  {0x38, []byte("\x00\x01a\x00"), malformed},
		"publish with packet id 0":    {0x32, []byte("\x00\x01a\x00\x00\x00"), violation},
		"publish without topic":       {0x30, []byte("\x00\x00\x00"), mqtt.TopicInvalid},
		"subscription identifier":     {0x30, []byte("\x00\x01a\x02\x0b\x01"), violation},
		"response topic with #":       {0x30, []byte("\x00\x01a\x04\x08\x00\x01#"), violation},
		"secret without a method":     {0xf0, []byte("\x19\x04\x16\x00\x01x"), violation},
		"subscribe without a filter":  {0x82, []byte("\x00\x01\x00"), violation},
		"reserved options":            {0x82, []byte("\x00\x01\x00\x00\x01a\x40"), malformed},
		"subscription identifier 0":   {0x82, []byte("\x00\x01\x02\x0b\x00\x00\x01a\x00"), violation},
		"disconnect with many bytes":  {0xe0, []byte("\x00\x00\x00"), malformed},
		"acknowledgement of packet 0": {0x40, []byte("\x00\x00"), violation},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			switch row.typ >> 4 {
			case mqtt.Connect:
				_, err = mqtt.DecodeConnect(row.body)
			case mqtt.Publish:
				_, err = mqtt.DecodePublish(mqtt.V5, row.typ, row.body)
			case mqtt.Puback:
				_, err = mqtt.DecodeAck(mqtt.V5, row.typ, row.body)
			case mqtt.Subscribe:
				_, err = mqtt.DecodeSubscribe(mqtt.V5, row.typ, row.body)
			default:
				_, err = mqtt.DecodeEnd(mqtt.V5, row.typ, row.body)
			}
			var wrong *mqtt.Error
			require.ErrorAs(t, err, &wrong)
			require.Equal(t, row.code, wrong.Code, "%v", err)
		})
	}
}

func TestTopicFilters(t *testing.T) {
	for filter, valid := range map[string]bool{
		"": false, "a": true, "+": true, "#": true, "a/+/b": true, "a/#": true, "a+": false, "a/#/b": false, "a/b#": false,
		"/": true, "$SYS/#": true,
	} {
		require.Equal(t, valid, mqtt.ValidFilter(filter), filter)
	}
	for _, row := range []struct {
		wide, narrow string
		covers       bool
	}{
		{"a/#", "a", true}, {"a/#", "a/b/c", true}, {"a/+", "a", false}, {"a/+", "a/b", true}, {"a/+", "a/#", false},
		{"a/#", "a/+/#", true}, {"#", "$SYS", false}, {"+/a", "$SYS/a", false}, {"$SYS/#", "$SYS/a", true}, {"a", "b", false},
		{"a/b", "a", false}, {"a", "a/b", false}, {"+", "+", true},
	} {
		require.Equal(t, row.covers, mqtt.Covers(row.wide, row.narrow), "%+v", row)
	}
	for filter, want := range map[string][]any{
		"a": {"a", false, true}, "$share/g/a/#": {"a/#", true, true}, "$share/g": {"", true, false},
		"$share//a": {"a", true, false}, "$share/+/a": {"a", true, false},
	} {
		plain, shared, ok := mqtt.Unshare(filter)
		require.Equal(t, want, []any{plain, shared, ok}, filter)
	}
}
