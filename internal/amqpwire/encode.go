package amqpwire

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

// Append appends the shortest encoding of a value. It fails for a Go type without an AMQP type, a
// string that is not UTF-8, a symbol that is not ASCII, an array of different types, and nesting
// deeper than the limit. With an error, the content of dst behind its old length is undefined.
func Append(dst []byte, v any) ([]byte, error) { return appendValue(dst, v, 0) }

func appendValue(dst []byte, v any, depth int) ([]byte, error) {
	if depth > maxDepth {
		return dst, fmt.Errorf("amqp: value nested more than %d deep", maxDepth)
	}
	switch v := v.(type) {
	case nil:
		return append(dst, codeNull), nil
	case bool:
		if v {
			return append(dst, codeTrue), nil
		}
		return append(dst, codeFalse), nil
	case uint32:
		switch {
		case v == 0:
			return append(dst, codeUint0), nil
		case v <= math.MaxUint8:
			return append(dst, codeSmallUint, byte(v)), nil
		}
	case uint64:
		switch {
		case v == 0:
			return append(dst, codeUlong0), nil
		case v <= math.MaxUint8:
			return append(dst, codeSmallUlong, byte(v)), nil
		}
	case int32:
		if math.MinInt8 <= v && v <= math.MaxInt8 {
			return append(dst, codeSmallInt, byte(v)), nil
		}
	case int64:
		if math.MinInt8 <= v && v <= math.MaxInt8 {
			return append(dst, codeSmallLong, byte(v)), nil
		}
	case []byte:
		if len(v) <= math.MaxUint8 {
			return append(append(dst, codeBinary8, byte(len(v))), v...), nil
		}
	case string:
		if err := checkString(v); err != nil {
			return dst, err
		}
		if len(v) <= math.MaxUint8 {
			return append(append(dst, codeString8, byte(len(v))), v...), nil
		}
	case Symbol:
		if err := checkSymbol(v); err != nil {
			return dst, err
		}
		if len(v) <= math.MaxUint8 {
			return append(append(dst, codeSymbol8, byte(len(v))), v...), nil
		}
	case List:
		return appendCompound(dst, codeList8,
			codeList32, len(v), depth, func(dst []byte) ([]byte, error) { return appendAll(dst, v, depth+1) })
	case Map:
		return appendCompound(dst, codeMap8,
			codeMap32, 2*len(v), depth, func(dst []byte) ([]byte, error) { return appendPairs(dst, v, depth+1) })
	case Array:
		return appendCompound(dst, codeArray8,
			codeArray32, len(v), depth, func(dst []byte) ([]byte, error) { return appendItems(dst, v, depth+1) })
	case *Described:
		return appendDescribed(dst, v.Descriptor, v.Value, depth)
	}
	code, err := widest(v)
	if err != nil {
		return dst, err
	}
	return appendBody(append(dst, code), v, depth)
}

func appendDescribed(dst []byte, descriptor, v any, depth int) ([]byte, error) {
	dst, err := appendValue(append(dst, codeDescribed), descriptor, depth+1)
	if err != nil {
		return dst, err
	}
	return appendValue(dst, v, depth+1)
}

// appendCompound writes a list, map or array, with lengths of one byte where they suffice.
func appendCompound(dst []byte, small, large byte, count, depth int, body func([]byte) ([]byte, error)) ([]byte,
	error) {
	if count == 0 && small == codeList8 {
		return append(dst, codeList0), nil
	}
	start := len(dst)
	dst, err := body(append(dst, large, 0, 0, 0, 0, 0, 0, 0, 0))
	if err != nil {
		return dst, err
	}
	size := len(dst) - start - 9
	switch {
	case count <= math.MaxUint8 && size+1 <= math.MaxUint8:
		dst[start], dst[start+1], dst[start+2] = small, byte(size+1), byte(count)
		return append(dst[:start+3], dst[start+9:]...), nil
	case size+4 > math.MaxInt32:
		return dst, fmt.Errorf("amqp: value of %d bytes", size)
	}
	binary.BigEndian.PutUint32(dst[start+1:], uint32(size+4))
	binary.BigEndian.PutUint32(dst[start+5:], uint32(count))
	return dst, nil
}

func appendAll(dst []byte, all []any, depth int) ([]byte, error) {
	var err error
	for _, v := range all {
		if dst, err = appendValue(dst, v, depth); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func appendPairs(dst []byte, m Map, depth int) ([]byte, error) {
	var err error
	for _, p := range m {
		if dst, err = appendValue(dst, p.Key, depth); err != nil {
			return dst, err
		}
		if dst, err = appendValue(dst, p.Value, depth); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// appendItems writes the single constructor of an array and its items, each in the widest form of
// the type.
func appendItems(dst []byte, all Array, depth int) ([]byte, error) {
	if depth > maxDepth {
		return dst, fmt.Errorf("amqp: value nested more than %d deep", maxDepth)
	}
	if len(all) == 0 {
		return append(dst, codeNull), nil
	}
	items := []any(all)
	if first, ok := items[0].(*Described); ok {
		items = make([]any, len(all))
		head, err := appendValue(nil, first.Descriptor, depth)
		if err != nil {
			return dst, err
		}
		for i, v := range all {
			d, ok := v.(*Described)
			if !ok {
				return dst, fmt.Errorf("amqp: array of %T and %T", first, v)
			}
			again, err := appendValue(nil, d.Descriptor, depth)
			if err != nil {
				return dst, err
			}
			if string(again) != string(head) {
				return dst, fmt.Errorf("amqp: array with descriptors %v and %v", first.Descriptor, d.Descriptor)
			}
			items[i] = d.Value
		}
		if _, twice := items[0].(*Described); twice {
			return dst, fmt.Errorf("amqp: array of values described twice")
		}
		dst = append(append(dst, codeDescribed), head...)
	}
	code, err := widest(items[0])
	if err != nil {
		return dst, err
	}
	dst = append(dst, code)
	for _, v := range items {
		if other, err := widest(v); err != nil || other != code {
			return dst, fmt.Errorf("amqp: array of %T and %T", items[0], v)
		}
		if dst, err = appendBody(dst, v, depth); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// widest returns the constructor that fits any value of the type.
func widest(v any) (byte, error) {
	switch v.(type) {
	case nil:
		return codeNull, nil
	case bool:
		return codeBoolean, nil
	case uint8:
		return codeUbyte, nil
	case int8:
		return codeByte, nil
	case uint16:
		return codeUshort, nil
	case int16:
		return codeShort, nil
	case uint32:
		return codeUint, nil
	case int32:
		return codeInt, nil
	case uint64:
		return codeUlong, nil
	case int64:
		return codeLong, nil
	case float32:
		return codeFloat, nil
	case float64:
		return codeDouble, nil
	case Char:
		return codeChar, nil
	case Timestamp:
		return codeTimestamp, nil
	case UUID:
		return codeUUID, nil
	case Decimal32:
		return codeDecimal32, nil
	case Decimal64:
		return codeDecimal64, nil
	case Decimal128:
		return codeDecimal128, nil
	case []byte:
		return codeBinary32, nil
	case string:
		return codeString32, nil
	case Symbol:
		return codeSymbol32, nil
	case List:
		return codeList32, nil
	case Map:
		return codeMap32, nil
	case Array:
		return codeArray32, nil
	}
	return 0, fmt.Errorf("amqp: no type for a %T", v)
}

// appendBody writes the bytes behind the widest constructor.
func appendBody(dst []byte, v any, depth int) ([]byte, error) {
	be := binary.BigEndian
	switch v := v.(type) {
	case nil:
		return dst, nil
	case bool:
		if v {
			return append(dst, 1), nil
		}
		return append(dst, 0), nil
	case uint8:
		return append(dst, v), nil
	case int8:
		return append(dst, byte(v)), nil
	case uint16:
		return be.AppendUint16(dst, v), nil
	case int16:
		return be.AppendUint16(dst, uint16(v)), nil
	case uint32:
		return be.AppendUint32(dst, v), nil
	case int32:
		return be.AppendUint32(dst, uint32(v)), nil
	case uint64:
		return be.AppendUint64(dst, v), nil
	case int64:
		return be.AppendUint64(dst, uint64(v)), nil
	case float32:
		return be.AppendUint32(dst, math.Float32bits(v)), nil
	case float64:
		return be.AppendUint64(dst, math.Float64bits(v)), nil
	case Char:
		return be.AppendUint32(dst, uint32(v)), nil
	case Timestamp:
		return be.AppendUint64(dst, uint64(v)), nil
	case UUID:
		return append(dst, v[:]...), nil
	case Decimal32:
		return append(dst, v[:]...), nil
	case Decimal64:
		return append(dst, v[:]...), nil
	case Decimal128:
		return append(dst, v[:]...), nil
	case []byte:
		return append(be.AppendUint32(dst, uint32(len(v))), v...), nil
	case string:
		if err := checkString(v); err != nil {
			return dst, err
		}
		return append(be.AppendUint32(dst, uint32(len(v))), v...), nil
	case Symbol:
		if err := checkSymbol(v); err != nil {
			return dst, err
		}
		return append(be.AppendUint32(dst, uint32(len(v))), v...), nil
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	var count int
	var err error
	switch v := v.(type) {
	case List:
		count = len(v)
		dst, err = appendAll(dst, v, depth+1)
	case Map:
		count = 2 * len(v)
		dst, err = appendPairs(dst, v, depth+1)
	case Array:
		count = len(v)
		dst, err = appendItems(dst, v, depth+1)
	}
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	binary.BigEndian.PutUint32(dst[start+4:], uint32(count))
	return dst, err
}

func checkString(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("amqp: string %q is not UTF-8", s)
	}
	return nil
}

func checkSymbol(s Symbol) error {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return fmt.Errorf("amqp: symbol %.64q is not ASCII", string(s))
		}
	}
	return nil
}
