package callback_test

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/callback"
)

func TestRun(t *testing.T) {
	cause := errors.New("why")
	for want, f := range map[string]func(){
		"":                          func() {},
		"callback X panicked: text": func() { panic("text") },
		"callback X panicked: why":  func() { panic(cause) },
		"callback X panicked":       func() { panic(7) },
		"callback X panicked: an error whose Error method panics": func() { panic((*os.PathError)(nil)) },
		`callback X panicked: sig=(hidden)\n`:                     func() { panic("sig=c2lnbmF0dXJl\n") },
		"callback X panicked: sig=(hidden)":                       func() { panic(errors.New("sig=c2lnbmF0dXJl")) },
		"callback X ended its goroutine (runtime.Goexit)":         runtime.Goexit,
	} {
		err := callback.Run("X", f)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, want)
	}
	require.ErrorIs(t, callback.Run("X", func() { panic(cause) }), cause)
	require.False(t, errors.Is(callback.Run("X", func() { panic((*os.PathError)(nil)) }), cause), "Unwrap would panic")
	none := map[string][]int{}
	require.ErrorContains(t, callback.Run("X", func() { none["a"][1] = 1 }), "index out of range")
	require.ErrorContains(t, callback.Run("X", func() { panic(nil) }), "panic called with nil")
}

func TestCall(t *testing.T) {
	require.NoError(t, callback.Call("X", func() error { return nil }))
	cause := errors.New("why")
	require.Equal(t, cause, callback.Call("X", func() error { return cause }))
	err := callback.Call("X", func() error { return (*os.PathError)(nil) })
	require.EqualError(t, err, "an error whose Error method panics")
	require.NotErrorIs(t, err, cause)
	require.EqualError(t, callback.Call("X", func() error { return exiting{} }),
		"callback X ended its goroutine (runtime.Goexit)")
	require.EqualError(t, callback.Call("X", func() error { panic(cause) }), "callback X panicked: why")
}

// exiting is an error whose Error method ends the goroutine.
type exiting struct{}

func (exiting) Error() string { runtime.Goexit(); return "" }
