package amqpwire

import (
	"encoding/binary"
	"unicode/utf8"
)

// Types is a set of types of values. All encodings of a type count as that type.
type Types uint32

// The types of values.
const (
	IsNull Types = 1 << iota
	IsBoolean
	IsUbyte
	IsUshort
	IsUint
	IsUlong
	IsByte
	IsShort
	IsInt
	IsLong
	IsFloat
	IsDouble
	IsDecimal
	IsChar
	IsTimestamp
	IsUUID
	IsBinary
	IsString
	IsSymbol
	IsList
	IsMap
	IsArray
	IsDescribed

	// IsText is both text types. Some brokers send one for the other.
	IsText = IsString | IsSymbol
	// IsAny is all types but null.
	IsAny = IsDescribed<<1 - 1 - IsNull
	// isKey is the types of map keys. Values of the other types are not comparable in Go, or never
	// equal.
	isKey = IsBoolean | IsUbyte | IsUshort | IsUint | IsUlong | IsByte | IsShort | IsInt | IsLong | IsChar | IsTimestamp |
		IsUUID | IsText
)

// typeOf is the type of each constructor, 0 for an invalid one.
var typeOf = [256]Types{
	codeDescribed: IsDescribed, codeNull: IsNull,
	codeTrue: IsBoolean, codeFalse: IsBoolean, codeBoolean: IsBoolean,
	codeUint0: IsUint, codeSmallUint: IsUint, codeUint: IsUint,
	codeUlong0: IsUlong, codeSmallUlong: IsUlong, codeUlong: IsUlong,
	codeUbyte: IsUbyte, codeByte: IsByte, codeUshort: IsUshort, codeShort: IsShort,
	codeSmallInt: IsInt, codeInt: IsInt, codeSmallLong: IsLong, codeLong: IsLong,
	codeFloat: IsFloat, codeDouble: IsDouble, codeChar: IsChar,
	codeDecimal32: IsDecimal, codeDecimal64: IsDecimal, codeDecimal128: IsDecimal, codeTimestamp: IsTimestamp,
	codeUUID:    IsUUID,
	codeBinary8: IsBinary, codeBinary32: IsBinary, codeString8: IsString, codeString32: IsString,
	codeSymbol8: IsSymbol, codeSymbol32: IsSymbol,
	codeList0: IsList, codeList8: IsList, codeList32: IsList, codeMap8: IsMap, codeMap32: IsMap,
	codeArray8: IsArray, codeArray32: IsArray,
}

// A Value describes a value that a [Walker] checked.
type Value struct {
	Type   Types
	Number uint64 // of a boolean (0 or 1) or an unsigned number
	Length int    // in bytes, of a binary, string or symbol
	Keys   Types  // of a map
	Items  Types  // of an array or list, and of a map's values
	Raw    []byte // the whole encoding; shares memory with the input
}

// A Walker checks values in place, without building them: constructors, sizes, counts, nesting,
// UTF-8, ASCII. Map keys must be simple values: texts, whole numbers, booleans, chars, timestamps
// and uuids. It does not check that keys are unique.
type Walker struct{ input }

// NewWalker returns a walker over b that takes at most the given number of values, at all depths
// together.
func NewWalker(b []byte, items int) Walker { return Walker{input{b, items}} }

// Rest returns the bytes behind the checked values.
func (w *Walker) Rest() []byte { return w.b }

// Next checks the next value and walks over it.
func (w *Walker) Next() (Value, error) {
	before := w.b
	var v Value
	if err := w.value(&v, 0); err != nil {
		return Value{}, err
	}
	v.Raw = before[:len(before)-len(w.b)]
	return v, nil
}

// Open walks over the next value, which must be a composite with a numeric descriptor. It returns
// the number and a walker over the fields. The caller checks the count fields, and that nothing
// follows them.
func (w *Walker) Open() (code uint64, fields Walker, count int, err error) {
	b := w.b
	switch {
	case len(b) > 2 && b[0] == codeDescribed && b[1] == codeSmallUlong:
		code, b = uint64(b[2]), b[3:]
	case len(b) > 9 && b[0] == codeDescribed && b[1] == codeUlong:
		code, b = binary.BigEndian.Uint64(b[2:]), b[10:]
	default:
		return 0, fields, 0, malformed("not a composite with a number for its descriptor")
	}
	if len(b) == 0 || typeOf[b[0]] != IsList {
		return 0, fields, 0, malformed("composite 0x%02x is not a list", code)
	}
	if b[0] == codeList0 {
		w.b = b[1:]
		return code, Walker{input{items: w.items}}, 0, nil
	}
	outer := input{b[1:], w.items}
	inner, count, err := outer.enter(b[0])
	if err != nil {
		return 0, fields, 0, err
	}
	w.b = outer.b
	return code, Walker{inner}, count, nil
}

func (w *Walker) value(v *Value, depth int) error {
	code, err := w.byte()
	if err != nil {
		return err
	}
	if code == codeDescribed {
		return w.described(v, depth)
	}
	return w.body(v, code, depth)
}

func (w *Walker) described(v *Value, depth int) error {
	if depth >= maxDepth {
		return malformed("value nested more than %d deep", maxDepth)
	}
	var part Value
	if err := w.value(&part, depth+1); err != nil {
		return err
	}
	if err := w.value(&part, depth+1); err != nil {
		return err
	}
	v.Type = IsDescribed
	return nil
}

// body checks the bytes behind a constructor.
func (w *Walker) body(v *Value, code byte, depth int) error {
	if w.items--; w.items < 0 {
		return malformed("too many items")
	}
	v.Type = typeOf[code]
	switch v.Type {
	case 0, IsDescribed:
		return malformed("constructor 0x%02x", code)
	case IsBinary, IsString, IsSymbol:
		return w.variable(v, code)
	case IsList:
		if code == codeList0 {
			return nil
		}
		return w.compound(v, code, depth)
	case IsMap, IsArray:
		return w.compound(v, code, depth)
	default: // nothing to do for the others
	}
	p, err := w.take(widthOf(code))
	if err != nil {
		return err
	}
	switch code {
	case codeTrue:
		v.Number = 1
	case codeBoolean, codeUbyte, codeSmallUint, codeSmallUlong:
		v.Number = uint64(p[0])
		if code == codeBoolean && p[0] > 1 {
			return malformed("boolean 0x%02x", p[0])
		}
	case codeUshort:
		v.Number = uint64(binary.BigEndian.Uint16(p))
	case codeUint:
		v.Number = uint64(binary.BigEndian.Uint32(p))
	case codeUlong:
		v.Number = binary.BigEndian.Uint64(p)
	case codeChar:
		if c := binary.BigEndian.Uint32(p); c > utf8.MaxRune || !utf8.ValidRune(rune(c)) {
			return malformed("char 0x%x", c)
		}
	}
	return nil
}

func (w *Walker) variable(v *Value, code byte) error {
	n, err := w.length(code)
	if err != nil {
		return err
	}
	p, err := w.take(n)
	if err != nil {
		return err
	}
	v.Length = n
	switch {
	case v.Type == IsString && !utf8.Valid(p):
		return malformed("string that is not UTF-8")
	case v.Type == IsSymbol:
		for _, c := range p {
			if c >= utf8.RuneSelf {
				return malformed("symbol that is not ASCII")
			}
		}
	}
	return nil
}

func (w *Walker) compound(v *Value, code byte, depth int) error {
	if depth >= maxDepth {
		return malformed("value nested more than %d deep", maxDepth)
	}
	in, count, err := w.enter(code)
	if err != nil {
		return err
	}
	inner := Walker{in}
	switch v.Type {
	case IsList:
		v.Items, err = inner.run(count, depth+1)
	case IsMap:
		v.Keys, v.Items, err = inner.pairs(count, depth+1)
	default:
		v.Items, err = inner.array(count, depth+1)
	}
	w.items = inner.items
	if err == nil && len(inner.b) > 0 {
		err = malformed("%d bytes behind the last item", len(inner.b))
	}
	return err
}

// run walks over count values and returns their types.
func (w *Walker) run(count, depth int) (Types, error) {
	var all Types
	for range count {
		var v Value
		if err := w.value(&v, depth); err != nil {
			return 0, err
		}
		all |= v.Type
	}
	return all, nil
}

func (w *Walker) pairs(count, depth int) (keys, values Types, err error) {
	if count%2 != 0 {
		return 0, 0, malformed("map of %d items", count)
	}
	for range count / 2 {
		var key, value Value
		if err := w.value(&key, depth); err != nil {
			return 0, 0, err
		}
		if key.Type&isKey == 0 {
			return 0, 0, malformed("map with a key that is no simple value")
		}
		if err := w.value(&value, depth); err != nil {
			return 0, 0, err
		}
		keys, values = keys|key.Type, values|value.Type
	}
	return keys, values, nil
}

func (w *Walker) array(count, depth int) (Types, error) {
	code, err := w.byte()
	if err != nil {
		return 0, err
	}
	described := code == codeDescribed
	if described {
		if depth >= maxDepth {
			return 0, malformed("value nested more than %d deep", maxDepth)
		}
		var descriptor Value
		if err := w.value(&descriptor, depth+1); err != nil {
			return 0, err
		}
		if code, err = w.byte(); err != nil {
			return 0, err
		}
		if code == codeDescribed {
			return 0, malformed("array of values described twice")
		}
	}
	if typeOf[code] == 0 {
		return 0, malformed("constructor 0x%02x", code)
	}
	if count > w.items || widthOf(code)*count > len(w.b) {
		return 0, malformed("%d items in %d bytes", count, len(w.b))
	}
	for range count {
		var v Value
		if err := w.body(&v, code, depth); err != nil {
			return 0, err
		}
	}
	items := typeOf[code]
	if described {
		items = IsDescribed
	}
	return items, nil
}
