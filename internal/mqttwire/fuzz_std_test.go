//go:build !tinygo

package mqttwire_test

import (
	"bytes"
	"testing"

	"github.com/hubline-iot/hubline/internal/mqttwire"
)

// No input makes the readers panic or return bytes outside the input. A packet that was read is
// encoded to the same bytes.
func FuzzRead(f *testing.F) {
	for _, c := range incoming {
		f.Add(unhex(c.wire))
	}
	for _, c := range outgoing {
		f.Add(unhex(c.wire))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok, err := mqttwire.Next(b)
		if err != nil || !ok {
			if err != nil && ok {
				t.Fatal("an error and a header")
			}
			return
		}
		if h.Size < 2 || h.Size > mqttwire.MaxHeader || h.Size > len(b) || h.Body < 0 || h.Body > mqttwire.MaxBody {
			t.Fatalf("%+v", h)
		}
		if h.Body > len(b)-h.Size {
			return
		}
		body := b[h.Size : h.Size+h.Body]
		switch h.Type {
		case mqttwire.Connack:
			if session, code, err := mqttwire.ReadConnack(body); err == nil && (session != (body[0] == 1) || code != body[1]) {
				t.Fatal(session, code)
			}
		case mqttwire.Publish:
			in, err := mqttwire.ReadPublish(h.Flags, body)
			if err != nil {
				return
			}
			if in.QoS > 2 || (in.ID == 0) != (in.QoS == 0) {
				t.Fatalf("%+v", in)
			}
			o := mqttwire.Outgoing{Dup: in.Dup, Retain: in.Retain, QoS: in.QoS, Topic: len(in.Topic), Body: len(in.Body)}
			again := append(mqttwire.AppendPublish(nil, &o), in.Topic...)
			if in.QoS > 0 {
				again = mqttwire.AppendID(again, in.ID)
			}
			if len(again) != o.HeadSize() {
				t.Fatalf("HeadSize %d, %d written", o.HeadSize(), len(again))
			}
			again = append(again, in.Body...)
			h2, _, _ := mqttwire.Next(again)
			if !bytes.Equal(again[h2.Size:], body) || h2.Flags != h.Flags {
				t.Fatalf("%x became %x", b, again)
			}
		case mqttwire.Puback, mqttwire.Unsuback:
			if id, err := mqttwire.ReadID(body); err == nil && h.Type == mqttwire.Puback &&
				!bytes.Equal(mqttwire.AppendAck(nil, mqttwire.Puback, id, 0)[2:], body) {
				t.Fatal(id)
			}
		case mqttwire.Suback:
			if id, codes, err := mqttwire.ReadSuback(body); err == nil && (id == 0 || len(codes) != len(body)-2) {
				t.Fatal(id, codes)
			}
		}
	})
}

// A CONNECT of either version is refused without a byte, or it is whole and as long as was said.
func FuzzConnect(f *testing.F) {
	f.Add("d", "u", "p", "t", []byte("b"), []byte("\x21\x00\x01"), []byte("\x18\x00\x00\x00\x01"), byte(1), true,
		uint16(60))
	f.Add("", "", "", "", []byte(nil), []byte(nil), []byte(nil), byte(0), false, uint16(0))
	f.Fuzz(func(t *testing.T, id, user, password, topic string, body, properties, ofWill []byte, qos byte, clean bool,
		keepAlive uint16) {
		for _, version := range []struct {
			encode func(dst []byte, g *mqttwire.Greeting) ([]byte, error)
			size   func(g *mqttwire.Greeting) int
			next   nextFunc
		}{
			{mqttwire.AppendConnect, mqttwire.ConnectSize, mqttwire.Next},
			{mqttwire.AppendConnect5, mqttwire.ConnectSize5, mqttwire.Next5},
		} {
			g := mqttwire.Greeting{ClientID: id, UserName: user, Password: password, CleanSession: clean,
				KeepAlive: keepAlive, Properties: properties}
			if topic != "" {
				g.Will = &mqttwire.Will{Topic: []byte(topic), Body: body, QoS: qos, Properties: ofWill}
			}
			b, err := version.encode(nil, &g)
			if err != nil {
				if len(b) > 0 {
					t.Fatal("an error and a packet")
				}
				continue
			}
			h, ok, err := version.next(b)
			if !ok || err != nil || h.Type != mqttwire.Connect || h.Size+h.Body != len(b) || len(b) != version.size(&g) {
				t.Fatalf("%x: %+v %v", b, h, err)
			}
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	buf := make([]byte, 0, 1024)
	suback, in := unhex("90 03 000A 01"), unhex("32 06 0001'a' 0007'x'")
	for name, f := range map[string]func(){
		"PUBLISH": func() {
			o := mqttwire.Outgoing{QoS: 1, Topic: 2, Body: 3}
			buf = append(mqttwire.AppendID(append(mqttwire.AppendPublish(buf[:0], &o), "t/"...), 7), "abc"...)
		},
		"PUBACK":    func() { buf = mqttwire.AppendAck(buf[:0], mqttwire.Puback, 7, 0) },
		"SUBSCRIBE": func() { buf, _ = mqttwire.AppendSubscribe(buf[:0], 7, mqttwire.Filter{Topic: "a/#", QoS: 1}) },
		"CONNECT": func() {
			buf, _ = mqttwire.AppendConnect(buf[:0], &mqttwire.Greeting{ClientID: "d", UserName: "u"})
		},
		"reading": func() {
			h, _, _ := mqttwire.Next(in)
			_, _ = mqttwire.ReadPublish(h.Flags, in[h.Size:])
			_, _, _ = mqttwire.ReadSuback(suback[2:])
			_, _ = mqttwire.ReadID(suback[2:4])
		},
		"errors": func() { _, _ = mqttwire.ReadPublish(6, in) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkPublish(b *testing.B) {
	buf, body := make([]byte, 0, 1024), make([]byte, 100)
	for b.Loop() {
		o := mqttwire.Outgoing{QoS: 1, Topic: 30, Body: len(body)}
		buf = append(mqttwire.AppendID(append(mqttwire.AppendPublish(buf[:0], &o), "devices/dev-1/messages/events/"...),
			7),
			body...)
	}
}

func BenchmarkPuback(b *testing.B) {
	in := unhex("40 02 0007")
	for b.Loop() {
		h, _, _ := mqttwire.Next(in)
		if id, err := mqttwire.ReadID(in[h.Size:]); id != 7 || err != nil {
			b.Fatal(id, err)
		}
	}
}
