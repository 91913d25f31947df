package testkit

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/times"
)

var duration = reflect.TypeFor[time.Duration]()

// Capped checks that resolve, the method of that name of an options type, caps every duration at
// times.Longest. Callers pass the longest duration for no limit, and a sum with it would be
// negative. Fields in skip, such as "Network.WriteTimeout", keep their zero value.
func Capped[T any](t *testing.T, resolve func(*T) (T, error), skip ...string) {
	t.Helper()
	var o T
	if len(FillDurations(&o, skip...)) == 0 {
		t.Fatal("the options have no durations")
	}
	r, err := resolve(&o)
	if err != nil {
		t.Fatal(err)
	}
	names, durations := UncappedDurations(&r)
	if len(names) > 0 || durations == 0 {
		t.Fatalf("%q of %d durations are not bounded; use times.Cap", names, durations)
	}
}

// FillDurations sets each time.Duration in options, a pointer to a struct, and in nested structs to
// the maximum, except the fields in skip. It returns their names.
func FillDurations(options any, skip ...string) (names []string) {
	walk(options, func(name string, v reflect.Value) {
		if !slices.Contains(skip, name) {
			v.SetInt(math.MaxInt64)
			names = append(names, name)
		}
	})
	return names
}

// UncappedDurations returns the names of the durations in options, a pointer to a struct, that are
// longer than times.Longest, and the number of all durations.
func UncappedDurations(options any) (names []string, durations int) {
	walk(options, func(name string, v reflect.Value) {
		durations++
		if time.Duration(v.Int()) > times.Longest {
			names = append(names, name)
		}
	})
	return names, durations
}

// walk calls f for each exported duration in the struct that options points to.
func walk(options any, f func(name string, v reflect.Value)) {
	var in func(prefix string, v reflect.Value)
	in = func(prefix string, v reflect.Value) {
		for i := range v.NumField() {
			field := v.Type().Field(i)
			switch {
			case !field.IsExported():
			case field.Type == duration:
				f(prefix+field.Name, v.Field(i))
			case field.Type.Kind() == reflect.Struct:
				in(prefix+field.Name+".", v.Field(i))
			}
		}
	}
	in("", reflect.ValueOf(options).Elem())
}
