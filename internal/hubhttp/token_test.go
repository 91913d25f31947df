package hubhttp

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

// Two concurrent requests with the same token are refused: both may try another one, in either
// order.
func TestOneTokenRefusedTwice(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		sign, err := transport.SharedKey("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
		require.NoError(t, err)
		all := NewTokens(&transport.Credentials{Host: "h", DeviceID: "d", Sign: sign}, new(Clock), time.Minute)
		first, fresh, err := all.Get(t.Context())
		require.NoError(t, err)
		require.True(t, fresh)
		time.Sleep(time.Second)
		again, fresh, err := all.Get(t.Context())
		require.NoError(t, err)
		require.False(t, fresh)
		require.Equal(t, first.Text.Reveal(), again.Text.Reveal())

		require.True(t, all.Refused(t.Context(), first, false))
		require.True(t, all.Refused(t.Context(), first, false))
		second, fresh, err := all.Get(t.Context())
		require.NoError(t, err)
		require.True(t, fresh)
		require.NotEqual(t, first.Text.Reveal(), second.Text.Reveal())
		require.True(t, all.Refused(t.Context(), first, false))
		third, fresh, err := all.Get(t.Context())
		require.NoError(t, err)
		require.False(t, fresh, "a late refusal of the old one costs nothing")
		require.Equal(t, second.Text.Reveal(), third.Text.Reveal())
		require.False(t, all.Refused(t.Context(), second, true),
			"it was made for this request, by a clock that nobody corrected")
	})
}

// A token that cannot be renewed is not asked for again, though its end is known.
func TestAFixedTokenIsAskedForOnce(t *testing.T) {
	for _, fixed := range []bool{true, false} {
		testkit.Bubble(t, func(t *testing.T) {
			asked := 0
			creds := &transport.Credentials{Host: "h", DeviceID: "d",
				Token: func(context.Context) (transport.Token, error) {
					asked++
					return transport.Token{Text: transport.Hide("x"), Expires: time.Now().Add(time.Hour), Fixed: fixed}, nil
				}}
			all := NewTokens(creds, new(Clock), time.Minute)
			for range 2 {
				_, _, err := all.Get(t.Context())
				require.NoError(t, err)
				time.Sleep(55 * time.Minute)
			}
			_, fresh, err := all.Get(t.Context())
			require.NoError(t, err)
			require.Equal(t, !fixed, fresh)
			require.Equal(t, fixed, asked == 1)
		})
	}
}
