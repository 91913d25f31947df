package hubhttp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// A refused token that is not fresh is replaced once. The same refusal as an err is final: its
// request must not be repeated.
func TestOnlyARefusalIsSentAgain(t *testing.T) {
	for name, c := range map[string]struct {
		final bool
		calls int
	}{"refusal": {false, 2}, "err": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			inYear2030(t, func(t *testing.T, creds *transport.Credentials) {
				tokens := NewTokens(creds, new(Clock), time.Minute)
				_, _, err := tokens.Get(t.Context())
				require.NoError(t, err)
				time.Sleep(time.Minute)

				refused, calls := &transport.Error{Kind: transport.Unauthorized, Op: transport.OpSend}, 0
				err = tokens.Do(t.Context(), func(string) (*transport.Error, error) {
					calls++
					if c.final {
						return nil, refused
					}
					return refused, nil
				})
				require.Same(t, refused, err)
				require.Equal(t, c.calls, calls)
			})
		})
	}
}
