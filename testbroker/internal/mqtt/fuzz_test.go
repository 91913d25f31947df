package mqtt_test

import (
	"bytes"
	"encoding/binary"
	"io"
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
	var in mqtt.Inbox
	again, body, err := in.Packet(bytes.NewReader(whole), len(whole), nil)
	if err != nil {
		t.Fatalf("%x: %v", whole, err)
	}
	if again != first&^0xf0|mqtt.Publish<<4 || !bytes.Equal(body, p) {
		t.Errorf("%x %x became %x %x", first, p, again, body)
	}
}

// FuzzPacket splits a stream at two places. The same packets are found, none is longer than the
// limit, together they begin the stream, and no read asks for much more than has arrived.
func FuzzPacket(f *testing.F) {
	f.Add([]byte{0xc0, 0, 0x32, 5, 0, 1, 'a', 0, 1, 0xc0, 0}, 3, 4, 16)
	f.Add(bytes.Repeat([]byte{0x30, 0x80, 1}, 100), 1, 2, 1000)
	f.Add([]byte{0x30, 0xff, 0xff, 0xff, 0xff, 0xff}, 0, 3, 1<<28)
	f.Add([]byte{0x30, 0xff, 0xff, 0xff, 0x7f, 1}, 2, 4, 1<<28)
	f.Add([]byte{0x30, 0x80, 0x00}, 1, 1, 16)
	f.Add(append([]byte{0x30, 0xf0, 0x1f}, make([]byte, 20_000)...), 600, 5000, 1<<28)
	f.Fuzz(func(t *testing.T, stream []byte, i, j, limit int) {
		i, j = min(max(i, 0), len(stream)), min(max(j, 0), len(stream))
		i, j = min(i, j), max(i, j)
		whole, room := packetsOf(limit, stream)
		split, splitRoom := packetsOf(limit, stream[:i], stream[i:j], stream[j:])
		if joined := bytes.Join(whole, nil); !bytes.HasPrefix(stream, joined) {
			t.Errorf("packets %x", whole)
		}
		if !slices.EqualFunc(whole, split, bytes.Equal) {
			t.Errorf("split at %d and %d: %x instead of %x", i, j, split, whole)
		}
		for _, p := range whole {
			if len(p) > limit {
				t.Errorf("a packet of %d bytes, limit %d", len(p), limit)
			}
		}
		if r := max(room, splitRoom); r > max(16<<10, 2*len(stream)) {
			t.Errorf("room for %d bytes after %d", r, len(stream))
		}
	})
}

// packetsOf returns the complete packets of a stream that arrives in pieces, and the most bytes
// that a read asked for.
func packetsOf(limit int, pieces ...[]byte) (all [][]byte, room int) {
	var in mqtt.Inbox
	from := readerFunc(func(p []byte) (int, error) {
		room = max(room, len(p))
		for len(pieces) > 0 && len(pieces[0]) == 0 {
			pieces = pieces[1:]
		}
		if len(pieces) == 0 {
			return 0, io.EOF
		}
		n := copy(p, pieces[0])
		pieces[0] = pieces[0][n:]
		return n, nil
	})
	for {
		first, body, err := in.Packet(from, limit, nil)
		if err != nil {
			return all, room
		}
		p := binary.AppendUvarint([]byte{first}, uint64(len(body)))
		all = append(all, append(p, body...))
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

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
