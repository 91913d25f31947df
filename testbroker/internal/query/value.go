package query

import (
	"cmp"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// A Document is a JSON object as decoded by package json. Numbers are json.Number, float64, int or
// int64.
type Document = map[string]any

type valueType uint8

const (
	typeUndefined valueType = iota
	typeNull
	typeBool
	typeNumber
	typeString
	typeArray
	typeObject
)

// A value is a value of an expression. The zero value is undefined.
type value struct {
	kind   valueType
	truth  bool
	number float64
	text   string
}

func boolean(b bool) value { return value{kind: typeBool, truth: b} }
func text(s string) value  { return value{kind: typeString, text: s} }

// number returns a number; undefined for what JSON cannot express.
func number(f float64) value {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return value{}
	}
	return value{kind: typeNumber, number: f}
}

// parsed returns the number that a text states, or undefined.
func parsed(s string) value {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return value{}
	}
	return number(f)
}

func valueOf(v any) value {
	switch v := v.(type) {
	case nil:
		return value{kind: typeNull}
	case bool:
		return boolean(v)
	case string:
		return text(v)
	case json.Number:
		return parsed(v.String())
	case float64:
		return number(v)
	case int:
		return number(float64(v))
	case int64:
		return number(float64(v))
	case []any:
		return value{kind: typeArray}
	case Document:
		return value{kind: typeObject}
	}
	return value{}
}

// order is the result of a comparison.
type order uint8

const (
	unknown   order = iota // one is undefined, or both are objects or arrays
	different              // of different types
	less
	equal
	greater
)

func compare(a, b value) order {
	if a.kind == typeUndefined || b.kind == typeUndefined {
		return unknown
	}
	if a.kind != b.kind {
		return different
	}
	result := 0
	switch a.kind {
	case typeNumber:
		result = cmp.Compare(a.number, b.number)
	case typeString:
		result = strings.Compare(a.text, b.text)
	case typeBool:
		if a.truth != b.truth {
			return different
		}
	case typeArray, typeObject:
		return unknown
	case typeUndefined, typeNull:
	}
	return [...]order{less, equal, greater}[result+1]
}
