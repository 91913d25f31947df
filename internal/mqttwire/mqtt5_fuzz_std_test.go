//go:build !tinygo

package mqttwire_test

import (
	"bytes"
	"testing"

	"github.com/hubline-iot/hubline/internal/mqttwire"
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
		h, ok, err := mqttwire.Next5(b)
		if err != nil || !ok {
			if err != nil && ok {
				t.Fatal("an error and a header")
			}
			return
		}
		if h.Size < 2 || h.Size > mqttwire.MaxHeader || h.Size > len(b) || h.Body < 0 || h.Body > mqttwire.MaxBody {
			t.Fatalf("%+v", h)
		}
		if old, ok, err := mqttwire.Next(b); h.Type != mqttwire.Auth && (!ok || err != nil || old != h) {
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
		case mqttwire.Publish:
			in, _ := mqttwire.ReadPublish5(h.Flags, body)
			o := mqttwire.Outgoing{Dup: in.Dup, Retain: in.Retain, QoS: in.QoS,
				Topic: len(in.Topic), Body: len(in.Body), Properties: mqttwire.BlockSize(len(in.Properties))}
			again := append(mqttwire.AppendPublish(nil, &o), in.Topic...)
			if in.QoS > 0 {
				again = mqttwire.AppendID(again, in.ID)
			}
			again = mqttwire.AppendBlock(again, in.Properties)
			if len(again) != o.HeadSize() {
				t.Fatalf("HeadSize %d, %d written", o.HeadSize(), len(again))
			}
			if again = append(again, in.Body...); !bytes.Equal(again, b) {
				t.Fatalf("%x became %x", b, again)
			}
		case mqttwire.Puback, mqttwire.Pubrec, mqttwire.Pubrel, mqttwire.Pubcomp:
			a, _ := mqttwire.ReadAck(h.Type, body)
			if len(body) == 2 && !bytes.Equal(mqttwire.AppendAck(nil, h.Type, a.ID, a.Reason), b) {
				t.Fatalf("%x became %+v", b, a)
			}
		case mqttwire.Disconnect, mqttwire.Auth:
			r, _ := mqttwire.ReadReason(h.Type, body)
			again, err := mqttwire.AppendReason(nil, h.Type, r.Code, r.Properties)
			if err != nil {
				if r.Properties.Text(mqttwire.ServerReference) == nil {
					t.Fatalf("%x: %v", b, err)
				}
				return
			}
			if r2, err := mqttwire.ReadReason(h.Type, again[headerSize(again):]); err != nil || r2.Code != r.Code {
				t.Fatalf("%x became %x, %v", b, again, err)
			}
		}
	})
}

// headerSize returns the size of the header of b.
func headerSize(b []byte) int {
	h, _, _ := mqttwire.Next5(b)
	return h.Size
}

func TestNothingIsAllocatedForMQTT5(t *testing.T) {
	buf, block := make([]byte, 0, 1024), make([]byte, 0, 1024)
	suback, in, puback := unhex("90 04 000A 00 01"), unhex("32 0E 0001'a' 0007 07 26 0001'n' 0001'v''x'"),
		unhex("40 02 0007")
	for name, f := range map[string]func(){
		"PUBLISH": func() {
			block = mqttwire.AppendPair(mqttwire.AppendString(block[:0], mqttwire.ContentType, "a/b"), "n", "v")
			o := mqttwire.Outgoing{QoS: 1, Topic: 2, Body: 3, Properties: mqttwire.BlockSize(len(block))}
			buf = mqttwire.AppendID(append(mqttwire.AppendPublish(buf[:0], &o), "t/"...), 7)
			buf = append(mqttwire.AppendBlock(buf, block), "abc"...)
		},
		"PUBACK": func() { buf = mqttwire.AppendAck(buf[:0], mqttwire.Puback, 7, 0x97) },
		"SUBSCRIBE": func() {
			buf, _ = mqttwire.AppendSubscribe5(buf[:0], 7, mqttwire.Options{}, mqttwire.Filter{Topic: "a/#", QoS: 1})
		},
		"CONNECT": func() {
			buf, _ = mqttwire.AppendConnect5(buf[:0], &mqttwire.Greeting{ClientID: "d"})
		},
		"reading": func() {
			h, _, _ := mqttwire.Next5(in)
			p, _ := mqttwire.ReadPublish5(h.Flags, in[h.Size:])
			for v, rest, ok := p.Properties.Next(); ok; v, rest, ok = rest.Next() {
				_ = v
			}
			_, _ = mqttwire.ReadCodes(mqttwire.Suback, suback[2:])
			_, _ = mqttwire.ReadAck(mqttwire.Puback, puback[2:])
		},
		"errors": func() { _, _ = mqttwire.ReadPublish5(6, in) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkPublish5(b *testing.B) {
	buf, body := make([]byte, 0, 1024), make([]byte, 100)
	for b.Loop() {
		o := mqttwire.Outgoing{QoS: 1, Topic: 30, Body: len(body), Properties: mqttwire.BlockSize(0)}
		buf = mqttwire.AppendID(append(mqttwire.AppendPublish(buf[:0], &o), "devices/dev-1/messages/events/"...), 7)
		buf = append(mqttwire.AppendBlock(buf, nil), body...)
	}
}

func BenchmarkPuback5(b *testing.B) {
	in := unhex("40 02 0007")
	for b.Loop() {
		h, _, _ := mqttwire.Next5(in)
		if a, err := mqttwire.ReadAck(h.Type, in[h.Size:]); a.ID != 7 || err != nil {
			b.Fatal(a, err)
		}
	}
}
