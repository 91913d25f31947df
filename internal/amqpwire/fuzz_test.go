package amqpwire

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
)

// FuzzDecode checks that a decoded value can be encoded, and decodes to the same value again.
func FuzzDecode(f *testing.F) {
	for _, c := range goldenValues {
		f.Add(unhex(f, c.wire))
	}
	f.Add([]byte{0x72, 0x7f, 0xc0, 0, 1}) // not a number
	f.Fuzz(func(t *testing.T, b []byte) {
		v, rest, err := Decode(b)
		if err != nil {
			return
		}
		if !bytes.HasSuffix(b, rest) {
			t.Fatalf("%x: rest %x", b, rest)
		}
		first, err := Append(nil, v)
		if err != nil {
			if strings.Contains(err.Error(), "deep") { // an array of lists counts one level more than its bytes
				return
			}
			t.Fatalf("%x is %#v, which cannot be written: %v", b, v, err)
		}
		again, _, err := Decode(first)
		if err != nil {
			t.Fatalf("%x written as %x: %v", b, first, err)
		}
		second, err := Append(nil, again)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%x written as %x, then as %x: %v", b, first, second, err)
		}
	})
}

// FuzzFrame checks that a decoded frame can be encoded, and decodes to the same frame again.
func FuzzFrame(f *testing.F) {
	for _, c := range goldenFrames {
		f.Add(unhex(f, c.wire))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, n, err := Split(b, math.MaxUint32)
		if err != nil || n == 0 {
			return
		}
		if n > len(b) || len(frame.Body) > n-HeaderSize {
			t.Fatalf("%x: %d bytes", b, n)
		}
		p, payload, err := frame.Performative()
		if err != nil {
			return
		}
		first, err := AppendFrame(nil, frame.Channel, p, payload)
		if err != nil {
			return // nested to the limit
		}
		frame, n, err = Split(first, math.MaxUint32)
		if err != nil || n != len(first) {
			t.Fatalf("%x written as %x: %d, %v", b, first, n, err)
		}
		again, payload2, err := frame.Performative()
		if err != nil || !bytes.Equal(payload, payload2) || reflect.TypeOf(p) != reflect.TypeOf(again) {
			t.Fatalf("%x is %#v, written as %x, is %#v: %v", b, p, first, again, err)
		}
		second, err := AppendFrame(nil, frame.Channel, again, payload2)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%x written as %x, then as %x: %v", b, first, second, err)
		}
	})
}

// FuzzMessage checks that a decoded message can be encoded, and decodes to the same message again.
func FuzzMessage(f *testing.F) {
	for _, c := range goldenMessages {
		f.Add(unhex(f, strings.NewReplacer("\n", "", "\t", "").Replace(c.wire)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMessage(b)
		if err != nil {
			return
		}
		first, err := AppendMessage(nil, m)
		if err != nil {
			return // nested to the limit
		}
		again, err := DecodeMessage(first)
		if err != nil {
			t.Fatalf("%x written as %x: %v", b, first, err)
		}
		second, err := AppendMessage(nil, again)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%x written as %x, then as %x: %v", b, first, second, err)
		}
	})
}
