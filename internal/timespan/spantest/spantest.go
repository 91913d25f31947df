// Package spantest finds durations of options that nobody bounds.
package spantest

import (
	"math"
	"reflect"
	"time"

	"github.com/hubline-iot/hubline/internal/timespan"
)

var duration = reflect.TypeFor[time.Duration]()

// Fill sets each field of options, a pointer to a struct, that is a time.Duration to the longest
// there is, but for those in skip. It returns their names.
func Fill(options any, skip ...string) (names []string) {
	v := reflect.ValueOf(options).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).Type() != duration || contains(skip, name) {
			continue
		}
		v.Field(i).SetInt(math.MaxInt64)
		names = append(names, name)
	}
	return names
}

// Unbounded returns the names of the fields of options, a pointer to a struct, that are longer than
// timespan.Most, and how many durations there are.
func Unbounded(options any) (names []string, durations int) {
	v := reflect.ValueOf(options).Elem()
	for i := range v.NumField() {
		if v.Field(i).Type() != duration {
			continue
		}
		durations++
		if time.Duration(v.Field(i).Int()) > timespan.Most {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	return names, durations
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}
