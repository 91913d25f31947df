package amqpwire

import (
	"strings"
	"testing"
)

// FuzzWalker checks that walker and decoder accept the same values, except for map keys: a walker
// accepts only simple ones, and does not notice a duplicate.
func FuzzWalker(f *testing.F) {
	for _, c := range goldenValues {
		f.Add(unhex(f, c.wire))
	}
	f.Add([]byte{0xe0, 2, 200, codeUint0})
	f.Add([]byte{0xc1, 5, 4, codeTrue, codeNull, codeTrue, codeNull})
	f.Add([]byte{0xc1, 3, 2, codeList0, codeNull})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, rest, err := Decode(b)
		w := NewWalker(b, len(b)+spareItems)
		v, bad := w.Next()
		switch {
		case err == nil && bad != nil && !strings.Contains(bad.Error(), "key that is no simple value"):
			t.Fatalf("%x can be decoded, but not walked over: %v", b, bad)
		case err != nil && bad == nil && !strings.Contains(err.Error(), "twice"):
			t.Fatalf("%x can be walked over, but not decoded: %v", b, err)
		case err == nil && bad == nil && (string(w.Rest()) != string(rest) || len(v.Raw)+len(rest) != len(b)):
			t.Fatalf("%x: rest %x, not %x", b, w.Rest(), rest)
		}
	})
}

func TestWalkerTellsWhatItSaw(t *testing.T) {
	b, err := Append(nil, Map{{Key: Symbol("a"), Value: List{uint32(7), Array{Decimal32{}}}}, {Key: "b", Value: "text"}})
	if err != nil {
		t.Fatal(err)
	}
	w := NewWalker(append(b, 0x60, 1, 2), 100)
	m, err := w.Next()
	if err != nil || m.Type != IsMap || m.Keys != IsText || m.Items != IsList|IsString ||
		string(m.Raw) != string(b) {
		t.Fatalf("%+v, %v", m, err)
	}
	n, err := w.Next()
	if err != nil || n.Type != IsUshort || n.Number != 0x102 || len(w.Rest()) != 0 {
		t.Fatalf("%+v, %v", n, err)
	}
	if _, err := w.Next(); err == nil {
		t.Fatal("there is nothing more")
	}
	one := NewWalker([]byte{codeTrue, codeTrue}, 1)
	if _, err := one.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Next(); err == nil {
		t.Fatal("two values of at most one")
	}
	few := NewWalker(b, 5)
	if _, err := few.Next(); err == nil || !strings.Contains(err.Error(), "too many items") {
		t.Fatalf("seven items of at most five: %v", err)
	}
}

func TestWalkerOpensComposites(t *testing.T) {
	list := []byte{0xc0, 4, 2, codeTrue, 0x50, 9}
	for name, head := range map[string][]byte{"short": {0, codeSmallUlong, 0x24}, "long": {0, codeUlong, 0, 0, 0, 0, 0, 0,
		0, 0x24}} {
		w := NewWalker(append(append(append([]byte(nil), head...), list...), 0x40), 100)
		code, fields, count, err := w.Open()
		if err != nil || code != 0x24 || count != 2 || len(w.Rest()) != 1 {
			t.Fatalf("%s: 0x%x, %d fields, %v", name, code, count, err)
		}
		if v, err := fields.Next(); err != nil || v.Number != 1 {
			t.Fatalf("%s: %+v, %v", name, v, err)
		}
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "a symbol": {0, codeSymbol8, 1, 'x', codeList0}, "no list": {0, codeSmallUlong, 1, codeNull},
		"cut short": {0, codeSmallUlong, 1, 0xc0, 9, 1},
		"no value":  {0, codeSmallUlong, 1}, "too many": {0, codeSmallUlong, 1, 0xd0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff},
	} {
		w := NewWalker(b, 100)
		if _, _, _, err := w.Open(); err == nil {
			t.Errorf("%s is opened", name)
		}
	}
}
