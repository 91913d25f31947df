//go:build !tinygo

package packet_test

import (
	"bytes"
	"testing"

	"github.com/hubline-iot/hubline/transport/mqtt/lean/packet"
)

// No input makes the readers panic or hand out what is not in the input, and what was understood is
// written the same way.
func FuzzRead(f *testing.F) {
	for _, c := range incoming {
		f.Add(unhex(c.wire))
	}
	for _, c := range outgoing {
		f.Add(unhex(c.wire))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok, err := packet.Next(b)
		if err != nil || !ok {
			if err != nil && ok {
				t.Fatal("an error and a header")
			}
			return
		}
		if h.Size < 2 || h.Size > packet.MaxHeader || h.Size > len(b) || h.Body < 0 || h.Body > packet.MaxBody {
			t.Fatalf("%+v", h)
		}
		if h.Body > len(b)-h.Size {
			return
		}
		body := b[h.Size : h.Size+h.Body]
		switch h.Type {
		case packet.Connack:
			if session, code, err := packet.ReadConnack(body); err == nil && (session != (body[0] == 1) || code != body[1]) {
				t.Fatal(session, code)
			}
		case packet.Publish:
			in, err := packet.ReadPublish(h.Flags, body)
			if err != nil {
				return
			}
			if !packet.ValidTopic(in.Topic) || in.QoS > 2 || (in.ID == 0) != (in.QoS == 0) {
				t.Fatalf("%+v", in)
			}
			o := packet.Outgoing{Dup: in.Dup, Retain: in.Retain, QoS: in.QoS, Topic: len(in.Topic), Body: len(in.Body)}
			again := append(packet.AppendPublish(nil, &o), in.Topic...)
			if in.QoS > 0 {
				again = packet.AppendID(again, in.ID)
			}
			if len(again) != o.HeadSize() {
				t.Fatalf("HeadSize %d, %d written", o.HeadSize(), len(again))
			}
			again = append(again, in.Body...)
			h2, _, _ := packet.Next(again)
			if !bytes.Equal(again[h2.Size:], body) || h2.Flags != h.Flags {
				t.Fatalf("%x became %x", b, again)
			}
		case packet.Puback, packet.Unsuback:
			if id, err := packet.ReadID(body); err == nil && h.Type == packet.Puback &&
				!bytes.Equal(packet.AppendPuback(nil, id)[2:], body) {
				t.Fatal(id)
			}
		case packet.Suback:
			if id, codes, err := packet.ReadSuback(body); err == nil && (id == 0 || len(codes) != len(body)-2) {
				t.Fatal(id, codes)
			}
		}
	})
}

func FuzzConnect(f *testing.F) {
	f.Add("d", "u", "p", "t", []byte("b"), byte(1), true, uint16(60))
	f.Add("", "", "", "", []byte(nil), byte(0), false, uint16(0))
	f.Fuzz(func(t *testing.T, id, user, password, topic string, body []byte, qos byte, clean bool, keepAlive uint16) {
		g := packet.Greeting{ClientID: id, UserName: user, Password: password, CleanSession: clean, KeepAlive: keepAlive}
		if topic != "" {
			g.Will = &packet.Will{Topic: []byte(topic), Body: body, QoS: qos}
		}
		b, err := packet.AppendConnect(nil, &g)
		if err != nil {
			if len(b) > 0 {
				t.Fatal("an error and a packet")
			}
			return
		}
		h, ok, err := packet.Next(b)
		if !ok || err != nil || h.Type != packet.Connect || h.Size+h.Body != len(b) || len(b) != packet.ConnectSize(&g) {
			t.Fatalf("%x: %+v %v", b, h, err)
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	buf := make([]byte, 0, 1024)
	suback, in := unhex("90 03 000A 01"), unhex("32 06 0001'a' 0007'x'")
	for name, f := range map[string]func(){
		"PUBLISH": func() {
			o := packet.Outgoing{QoS: 1, Topic: 2, Body: 3}
			buf = append(packet.AppendID(append(packet.AppendPublish(buf[:0], &o), "t/"...), 7), "abc"...)
		},
		"PUBACK":    func() { buf = packet.AppendPuback(buf[:0], 7) },
		"SUBSCRIBE": func() { buf, _ = packet.AppendSubscribe(buf[:0], 7, packet.Filter{Topic: "a/#", QoS: 1}) },
		"CONNECT":   func() { buf, _ = packet.AppendConnect(buf[:0], &packet.Greeting{ClientID: "d", UserName: "u"}) },
		"reading": func() {
			h, _, _ := packet.Next(in)
			_, _ = packet.ReadPublish(h.Flags, in[h.Size:])
			_, _, _ = packet.ReadSuback(suback[2:])
			_, _ = packet.ReadID(suback[2:4])
		},
		"errors": func() { _, _ = packet.ReadPublish(6, in) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkPublish(b *testing.B) {
	buf, body := make([]byte, 0, 1024), make([]byte, 100)
	for b.Loop() {
		o := packet.Outgoing{QoS: 1, Topic: 30, Body: len(body)}
		buf = append(packet.AppendID(append(packet.AppendPublish(buf[:0], &o), "devices/dev-1/messages/events/"...), 7),
			body...)
	}
}

func BenchmarkPuback(b *testing.B) {
	in := unhex("40 02 0007")
	for b.Loop() {
		h, _, _ := packet.Next(in)
		if id, err := packet.ReadID(in[h.Size:]); id != 7 || err != nil {
			b.Fatal(id, err)
		}
	}
}
