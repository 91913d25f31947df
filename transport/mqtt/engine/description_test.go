package engine

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/lifetime"
)

// The compiler for boards links a description of each type that an interface holds, with the types
// of its fields and all of their methods. A field that is a function ends that.
func TestWhatInterfacesHoldHasOnlyFunctionsAsFields(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[Transport](), reflect.TypeFor[live](),
		reflect.TypeFor[lifetime.Context]()} {
		require.NotZero(t, typ.NumField())
		for i := range typ.NumField() {
			require.Equal(t, reflect.Func, typ.Field(i).Type.Kind(), "%v.%s", typ, typ.Field(i).Name)
		}
	}
}
