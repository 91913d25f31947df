package amqpwire

import (
	"encoding/binary"
	"math"
	"slices"
	"unicode/utf8"
)

// Decode reads one value and returns the bytes behind it. The value shares no memory with b.
func Decode(b []byte) (v any, rest []byte, err error) {
	d := newDecoder(b)
	if v, err = d.value(0); err != nil {
		return nil, nil, err
	}
	return v, d.b, nil
}

// A decoder reads values from the front of a slice.
type decoder struct {
	input
	tolerant bool // see DecodeTolerant
}

func newDecoder(b []byte) decoder { return decoder{input: input{b, len(b) + spareItems}} }

func (d *decoder) value(depth int) (any, error) {
	code, err := d.byte()
	if err != nil {
		return nil, err
	}
	if code != codeDescribed {
		return d.body(code, depth)
	}
	if depth >= maxDepth {
		return nil, malformed("value nested more than %d deep", maxDepth)
	}
	descriptor, err := d.value(depth + 1)
	if err != nil {
		return nil, err
	}
	v, err := d.value(depth + 1)
	if err != nil {
		return nil, err
	}
	return &Described{descriptor, v}, nil
}

// body reads the bytes behind a constructor.
func (d *decoder) body(code byte, depth int) (any, error) {
	if d.items--; d.items < 0 {
		return nil, malformed("too many items")
	}
	switch typeOf[code] {
	case IsBinary, IsString, IsSymbol:
		return d.variable(code)
	case IsList, IsMap, IsArray:
		if code != codeList0 {
			return d.compound(code, depth)
		}
	default: // nothing to do for the others
	}
	p, err := d.take(widthOf(code))
	if err != nil {
		return nil, err
	}
	be := binary.BigEndian
	switch code {
	case codeNull:
		return nil, nil
	case codeTrue:
		return true, nil
	case codeFalse:
		return false, nil
	case codeBoolean:
		if p[0] > 1 {
			return nil, malformed("boolean 0x%02x", p[0])
		}
		return p[0] == 1, nil
	case codeUint0:
		return uint32(0), nil
	case codeUlong0:
		return uint64(0), nil
	case codeList0:
		return List(nil), nil
	case codeUbyte:
		return p[0], nil
	case codeByte:
		return int8(p[0]), nil
	case codeSmallUint:
		return uint32(p[0]), nil
	case codeSmallUlong:
		return uint64(p[0]), nil
	case codeSmallInt:
		return int32(int8(p[0])), nil
	case codeSmallLong:
		return int64(int8(p[0])), nil
	case codeUshort:
		return be.Uint16(p), nil
	case codeShort:
		return int16(be.Uint16(p)), nil
	case codeUint:
		return be.Uint32(p), nil
	case codeInt:
		return int32(be.Uint32(p)), nil
	case codeFloat:
		return math.Float32frombits(be.Uint32(p)), nil
	case codeChar:
		c := be.Uint32(p)
		if c > utf8.MaxRune || !utf8.ValidRune(rune(c)) {
			return nil, malformed("char 0x%x", c)
		}
		return Char(c), nil
	case codeDecimal32:
		return Decimal32(p), nil
	case codeUlong:
		return be.Uint64(p), nil
	case codeLong:
		return int64(be.Uint64(p)), nil
	case codeDouble:
		return math.Float64frombits(be.Uint64(p)), nil
	case codeTimestamp:
		return Timestamp(be.Uint64(p)), nil
	case codeDecimal64:
		return Decimal64(p), nil
	case codeDecimal128:
		return Decimal128(p), nil
	case codeUUID:
		return UUID(p), nil
	}
	return nil, malformed("constructor 0x%02x", code)
}

// variable reads a binary, string or symbol.
func (d *decoder) variable(code byte) (any, error) {
	n, err := d.length(code)
	if err != nil {
		return nil, err
	}
	p, err := d.take(n)
	if err != nil {
		return nil, err
	}
	switch code {
	case codeBinary8, codeBinary32:
		return append(make([]byte, 0, len(p)), p...), nil
	case codeString8, codeString32:
		if !utf8.Valid(p) {
			return nil, malformed("string %q is not UTF-8", p[:min(len(p), 64)])
		}
		return string(p), nil
	}
	s := Symbol(p)
	if checkSymbol(s) != nil {
		return nil, malformed("symbol %q is not ASCII", p[:min(len(p), 64)])
	}
	return s, nil
}

// compound reads a list, map or array.
func (d *decoder) compound(code byte, depth int) (any, error) {
	if depth >= maxDepth {
		return nil, malformed("value nested more than %d deep", maxDepth)
	}
	inner, count, err := d.enter(code)
	if err != nil {
		return nil, err
	}
	in := decoder{inner, d.tolerant}
	var v any
	switch typeOf[code] {
	case IsList:
		v, err = in.list(count, depth+1)
	case IsMap:
		v, err = in.pairs(count, depth+1)
	default:
		v, err = in.array(count, depth+1)
	}
	if err == nil && len(in.b) > 0 {
		err = malformed("%d bytes behind the last item", len(in.b))
	}
	d.items = in.items
	return v, err
}

// claim takes items of least bytes each from the bound before memory is reserved for them. item
// gives one back, to be decoded. So the items of all depths together keep to the bound.
func (d *decoder) claim(count, least int) error {
	if least*count > len(d.b) || count > d.items {
		return malformed("%d items in %d bytes", count, len(d.b))
	}
	d.items -= count
	return nil
}

func (d *decoder) item(depth int) (any, error) {
	d.items++
	return d.value(depth)
}

func (d *decoder) list(count, depth int) (List, error) {
	if err := d.claim(count, 1); err != nil {
		return nil, err
	}
	all := make(List, count)
	for i := range all {
		v, err := d.item(depth)
		if err != nil {
			return nil, err
		}
		all[i] = v
	}
	return all, nil
}

func (d *decoder) pairs(count, depth int) (Map, error) {
	if err := d.claim(count, 1); err != nil {
		return nil, err
	}
	if count%2 != 0 {
		return nil, malformed("map of %d items", count)
	}
	m := make(Map, count/2)
	seen := make(map[any]bool, len(m))
	for i := range m {
		key, err := d.item(depth)
		if err != nil {
			return nil, err
		}
		if k, ok := keyOf(key); ok {
			if seen[k] {
				return nil, malformed("map with a key twice")
			}
			seen[k] = true
		}
		value, err := d.item(depth)
		if err != nil {
			return nil, err
		}
		m[i] = Pair{key, value}
	}
	return m, nil
}

// keyOf returns a form of a key that is equal for equal keys. It returns false for types that Go
// cannot compare, which are not used as keys.
func keyOf(key any) (any, bool) {
	type binary string
	switch k := key.(type) {
	case []byte:
		return binary(k), true
	case List, Map, Array, *Described:
		return nil, false
	}
	return key, true
}

func (d *decoder) array(count, depth int) (Array, error) {
	code, err := d.byte()
	if err != nil {
		return nil, err
	}
	var descriptor any
	described := code == codeDescribed
	if described {
		if depth >= maxDepth {
			return nil, malformed("value nested more than %d deep", maxDepth)
		}
		if descriptor, err = d.value(depth + 1); err != nil {
			return nil, err
		}
		if code, err = d.byte(); err != nil {
			return nil, err
		}
		if code == codeDescribed {
			return nil, malformed("array of values described twice")
		}
	}
	if typeOf[code] == 0 { // checked here, as an empty array decodes no item
		return nil, malformed("constructor 0x%02x", code)
	}
	if err := d.claim(count, widthOf(code)); err != nil {
		return nil, err
	}
	all := make(Array, count)
	for i := range all {
		d.items++ // as item does
		v, err := d.body(code, depth)
		if err != nil {
			return nil, err
		}
		if described {
			v = &Described{descriptor, v}
		}
		all[i] = v
	}
	return all, nil
}

// symbolArray returns an array of symbols even for a single one, which some clients require.
func symbolArray(all []Symbol) Array {
	a := make(Array, len(all))
	for i, s := range all {
		a[i] = s
	}
	return slices.Clip(a)
}
