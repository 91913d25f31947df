package mqtt_test

import (
	"bufio"
	"bytes"
	"slices"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// FuzzDecode decodes a packet of each type in both versions. What is decoded is within the limits
// of the standard, and a PUBLISH encoded again decodes to the same.
func FuzzDecode(f *testing.F) {
	for _, c := range packets.TPacketData {
		for _, p := range c {
			if len(p.RawBytes) > 2 {
				f.Add(p.RawBytes[0], p.RawBytes[2:], true)
				f.Add(p.RawBytes[0], p.RawBytes[2:], false)
			}
		}
	}
	f.Fuzz(func(t *testing.T, first byte, p []byte, five bool) {
		version := byte(mqtt.V311)
		if five {
			version = mqtt.V5
		}
		before := slices.Clone(p)
		switch first >> 4 {
		case mqtt.Connect:
			k, err := mqtt.DecodeConnect(p)
			if err == nil && k.Will != nil && (!mqtt.ValidName(k.Will.Topic) || k.Will.QoS > 2) {
				t.Errorf("will %+v", k.Will)
			}
		case mqtt.Publish:
			roundTrip(t, version, first, p)
		case mqtt.Puback, mqtt.Pubrec, mqtt.Pubrel, mqtt.Pubcomp:
			if a, err := mqtt.DecodeAck(version, first, p); err == nil && a.ID == 0 {
				t.Error("packet id 0")
			}
		case mqtt.Subscribe, mqtt.Unsubscribe:
			if s, err := mqtt.DecodeSubscribe(version, first, p); err == nil && (s.ID == 0 || len(s.Filters) == 0) {
				t.Errorf("%+v", s)
			}
		case mqtt.Disconnect, mqtt.Auth:
			if _, err := mqtt.DecodeEnd(version, first, p); err == nil && version == mqtt.V311 && len(p) > 0 {
				t.Error("a body in MQTT 3.1.1")
			}
		}
		if !bytes.Equal(p, before) {
			t.Error("the input was changed")
		}
	})
}

// roundTrip decodes a PUBLISH, and what it was encoded to again.
func roundTrip(t *testing.T, version, first byte, p []byte) {
	k, err := mqtt.DecodePublish(version, first, p)
	if err != nil {
		return
	}
	for _, p := range k.Properties {
		if p.ID == mqtt.SubscriptionID {
			return
		}
	}
	whole := mqtt.EncodePublish(version, k)
	again, body, err := mqtt.ReadFrame(bufio.NewReader(bytes.NewReader(whole)), len(whole), nil)
	if err != nil {
		t.Fatalf("%x: %v", whole, err)
	}
	if again != first&^0xf0|mqtt.Publish<<4 || !bytes.Equal(body, p) {
		t.Errorf("%x %x became %x %x", first, p, again, body)
	}
}

// FuzzReadFrame reads packets from a stream. No packet is longer than the limit, and together with
// their lengths they are the stream.
func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{0xc0, 0, 0x30, 3, 0, 1, 'a'}, 16)
	f.Add([]byte{0x30, 0xff, 0xff, 0xff, 0x7f}, 1<<28)
	f.Add([]byte{0x30, 0x80, 0x00}, 16)
	f.Fuzz(func(t *testing.T, p []byte, limit int) {
		limit = min(limit, 1<<16)
		r := bytes.NewReader(p)
		in := bufio.NewReader(r)
		for {
			left := r.Len() + in.Buffered()
			_, body, err := mqtt.ReadFrame(in, limit, nil)
			if err != nil {
				return
			}
			used := left - r.Len() - in.Buffered()
			if used > limit || used < len(body)+2 || used > len(body)+5 {
				t.Fatalf("%d bytes for a body of %d, limit %d", used, len(body), limit)
			}
		}
	})
}

// FuzzCovers compares filters with topics level by level: a filter that covers another one matches
// each topic that the other one matches.
func FuzzCovers(f *testing.F) {
	for _, s := range [][3]string{
		{"a/#", "a/+/b", "a/x/b"}, {"#", "a", "a"}, {"+/b", "a/b", "a/b"}, {"a/#", "a", "a"}, {"+", "#", "a"},
		{"$SYS/#", "#", "$SYS/a"}, {"#", "$SYS", "$SYS"},
	} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, wide, narrow, topic string) {
		if !mqtt.ValidFilter(wide) || !mqtt.ValidFilter(narrow) || !mqtt.ValidName(topic) {
			return
		}
		if mqtt.Covers(wide, narrow) && mqtt.Covers(narrow, topic) && !mqtt.Covers(wide, topic) {
			t.Errorf("%q covers %q, which matches %q", wide, narrow, topic)
		}
		if !mqtt.Covers(topic, topic) || !mqtt.Covers(narrow, narrow) {
			t.Error("a filter does not cover itself")
		}
	})
}
