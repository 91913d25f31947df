//go:build !tinygo

package mqttpacket_test

import (
	"bytes"
	"testing"

	"github.com/hubline-iot/hubline/internal/mqttpacket"
)

// No input makes the readers panic or return bytes outside the input, and every packet that is read
// has only properties that can be walked to their end. A PUBLISH, and an acknowledgement without
// properties, is encoded to the same bytes.
func FuzzRead5(f *testing.F) {
	for _, c := range incoming5 {
		f.Add(unhex(c.wire))
	}
	for _, c := range outgoing5 {
		f.Add(unhex(c.wire))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok, err := mqttpacket.Next5(b)
		if err != nil || !ok {
			if err != nil && ok {
				t.Fatal("an error and a header")
			}
			return
		}
		if h.Size < 2 || h.Size > mqttpacket.MaxHeader || h.Size > len(b) || h.Body < 0 || h.Body > mqttpacket.MaxBody {
			t.Fatalf("%+v", h)
		}
		if old, ok, err := mqttpacket.Next(b); h.Type != mqttpacket.Auth && (!ok || err != nil || old != h) {
			t.Fatalf("%+v, MQTT 3.1.1 reads %+v %v", h, old, err)
		}
		if h.Body > len(b)-h.Size {
			return
		}
		b = b[:h.Size+h.Body]
		if _, err := describe5(b); err != nil {
			return
		}
		body := b[h.Size:]
		switch h.Type {
		case mqttpacket.Publish:
			in, _ := mqttpacket.ReadPublish5(h.Flags, body)
			o := mqttpacket.Outgoing{Dup: in.Dup, Retain: in.Retain, QoS: in.QoS,
				Topic: len(in.Topic), Body: len(in.Body), Properties: mqttpacket.BlockSize(len(in.Properties))}
			again := append(mqttpacket.AppendPublish(nil, &o), in.Topic...)
			if in.QoS > 0 {
				again = mqttpacket.AppendID(again, in.ID)
			}
			again = mqttpacket.AppendBlock(again, in.Properties)
			if len(again) != o.HeadSize() {
				t.Fatalf("HeadSize %d, %d written", o.HeadSize(), len(again))
			}
			if again = append(again, in.Body...); !bytes.Equal(again, b) {
				t.Fatalf("%x became %x", b, again)
			}
		case mqttpacket.Puback, mqttpacket.Pubrec, mqttpacket.Pubrel, mqttpacket.Pubcomp:
			a, _ := mqttpacket.ReadAck(h.Type, body)
			if len(body) == 2 && !bytes.Equal(mqttpacket.AppendAck(nil, h.Type, a.ID, a.Reason), b) {
				t.Fatalf("%x became %+v", b, a)
			}
		case mqttpacket.Disconnect, mqttpacket.Auth:
			r, _ := mqttpacket.ReadReason(h.Type, body)
			again, err := mqttpacket.AppendReason(nil, h.Type, r.Code, r.Properties)
			if err != nil {
				if r.Properties.Text(mqttpacket.ServerReference) == nil {
					t.Fatalf("%x: %v", b, err)
				}
				return
			}
			if r2, err := mqttpacket.ReadReason(h.Type, again[headerSize(again):]); err != nil || r2.Code != r.Code {
				t.Fatalf("%x became %x, %v", b, again, err)
			}
		}
	})
}

// headerSize returns the size of the header of b.
func headerSize(b []byte) int {
	h, _, _ := mqttpacket.Next5(b)
	return h.Size
}

func FuzzConnect5(f *testing.F) {
	f.Add("d", "u", "p", "t", []byte("b"), []byte("\x21\x00\x01"), []byte("\x18\x00\x00\x00\x01"), byte(1), true)
	f.Add("", "", "", "", []byte(nil), []byte(nil), []byte(nil), byte(0), false)
	f.Fuzz(func(t *testing.T, id, user, password, topic string, body, properties, ofWill []byte, qos byte, clean bool) {
		g := mqttpacket.Greeting{ClientID: id, UserName: user, Password: password, CleanSession: clean,
			Properties: properties}
		if topic != "" {
			g.Will = &mqttpacket.Will{Topic: []byte(topic), Body: body, QoS: qos, Properties: ofWill}
		}
		b, err := mqttpacket.AppendConnect5(nil, &g)
		if err != nil {
			if len(b) > 0 {
				t.Fatal("an error and a packet")
			}
			return
		}
		h, ok, err := mqttpacket.Next5(b)
		if !ok || err != nil || h.Type != mqttpacket.Connect || h.Size+h.Body != len(b) ||
			len(b) != mqttpacket.ConnectSize5(&g) {
			t.Fatalf("%x: %+v %v", b, h, err)
		}
	})
}

func TestNothingIsAllocatedForMQTT5(t *testing.T) {
	buf, block := make([]byte, 0, 1024), make([]byte, 0, 1024)
	suback, in, puback := unhex("90 04 000A 00 01"), unhex("32 0E 0001'a' 0007 07 26 0001'n' 0001'v''x'"),
		unhex("40 02 0007")
	for name, f := range map[string]func(){
		"PUBLISH": func() {
			block = mqttpacket.AppendPair(mqttpacket.AppendString(block[:0], mqttpacket.ContentType, "a/b"), "n", "v")
			o := mqttpacket.Outgoing{QoS: 1, Topic: 2, Body: 3, Properties: mqttpacket.BlockSize(len(block))}
			buf = mqttpacket.AppendID(append(mqttpacket.AppendPublish(buf[:0], &o), "t/"...), 7)
			buf = append(mqttpacket.AppendBlock(buf, block), "abc"...)
		},
		"PUBACK": func() { buf = mqttpacket.AppendAck(buf[:0], mqttpacket.Puback, 7, 0x97) },
		"SUBSCRIBE": func() {
			buf, _ = mqttpacket.AppendSubscribe5(buf[:0], 7, nil, mqttpacket.Options{}, mqttpacket.Filter{Topic: "a/#", QoS: 1})
		},
		"CONNECT": func() {
			buf, _ = mqttpacket.AppendConnect5(buf[:0], &mqttpacket.Greeting{ClientID: "d"})
		},
		"reading": func() {
			h, _, _ := mqttpacket.Next5(in)
			p, _ := mqttpacket.ReadPublish5(h.Flags, in[h.Size:])
			for v, rest, ok := p.Properties.Next(); ok; v, rest, ok = rest.Next() {
				_ = v
			}
			_, _ = mqttpacket.ReadCodes(mqttpacket.Suback, suback[2:])
			_, _ = mqttpacket.ReadAck(mqttpacket.Puback, puback[2:])
		},
		"errors": func() { _, _ = mqttpacket.ReadPublish5(6, in) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkPublish5(b *testing.B) {
	buf, body := make([]byte, 0, 1024), make([]byte, 100)
	for b.Loop() {
		o := mqttpacket.Outgoing{QoS: 1, Topic: 30, Body: len(body), Properties: mqttpacket.BlockSize(0)}
		buf = mqttpacket.AppendID(append(mqttpacket.AppendPublish(buf[:0], &o), "devices/dev-1/messages/events/"...), 7)
		buf = append(mqttpacket.AppendBlock(buf, nil), body...)
	}
}

func BenchmarkPuback5(b *testing.B) {
	in := unhex("40 02 0007")
	for b.Loop() {
		h, _, _ := mqttpacket.Next5(in)
		if a, err := mqttpacket.ReadAck(h.Type, in[h.Size:]); a.ID != 7 || err != nil {
			b.Fatal(a, err)
		}
	}
}
