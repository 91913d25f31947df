package hubhttp

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

// says returns the header of an answer written now by a clock that is ahead by this much.
func says(ahead time.Duration) http.Header {
	return http.Header{"Date": {time.Now().Add(ahead).UTC().Format(http.TimeFormat)}}
}

// The first answer may be slow, and the hub may have read its clock at any moment of the round
// trip. The estimate, or this process's clock if that is kept, is wrong by at most the round trip,
// which tokens tolerate. The next quick answer corrects it, and a slow one after that changes
// nothing.
func TestTheFirstAnswerMayBeSlow(t *testing.T) {
	const trip = 2 * time.Minute // the default time limit of a request
	for ahead := -3 * time.Minute; ahead <= 3*time.Minute; ahead += 10 * time.Second {
		for _, written := range []time.Duration{0, trip / 4, trip / 2, trip} {
			testkit.Bubble(t, func(t *testing.T) {
				row := fmt.Sprint(ahead, " ", written)
				var c Clock
				sign, err := transport.SharedKey("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
				require.NoError(t, err)
				time.Sleep(time.Hour) // the clock shows the year 2000 with every skew
				slow := func() {
					sent := time.Now()
					time.Sleep(written)
					header := says(ahead)
					time.Sleep(trip - written)
					c.Learn(header, nil, sent, time.Now())
				}
				slow()
				skew, known := c.Skew()
				require.True(t, known)
				require.InDelta(t, ahead, skew, float64(trip+2*resolution), row)

				token, _, err := NewTokens(&transport.Credentials{Host: "h", DeviceID: "d", Sign: sign}, &c,
					time.Minute).Get(t.Context())
				require.NoError(t, err)
				left := token.Expires.Sub(time.Now().Add(ahead))
				require.Greater(t, left, 50*time.Minute, row)
				require.Less(t, left, 70*time.Minute, row)

				c.Learn(says(ahead), nil, time.Now(), time.Now())
				skew, _ = c.Skew()
				require.InDelta(t, ahead, skew, float64(2*resolution), row)
				slow()
				skew, _ = c.Skew()
				require.InDelta(t, ahead, skew, float64(2*resolution), row)
			})
		}
	}
}

// A clock is set, or a machine resumes: the stored offset belongs to the old clock and is invalid.
func TestTheOffsetGoesWithTheClock(t *testing.T) {
	const years = 56 * 365 * 24 * time.Hour
	sign, err := transport.SharedKey("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	require.NoError(t, err)
	for name, was := range map[string]time.Duration{"years ahead": years, "years behind": -years,
		"hours ahead":  3 * time.Hour,
		"hours behind": -3 * time.Hour} {
		testkit.Run(t, name, func(t *testing.T) {
			var c Clock
			c.Learn(says(0), nil, time.Now(), time.Now())
			e := *c.latest.Load() // as if the clock had been wrong when the estimate was made
			e.offset, e.wall = -was, e.wall.Add(was)
			c.latest.Store(&e)
			_, known := c.Skew()
			require.False(t, known)
			require.WithinDuration(t, time.Now(), c.Now(), 0)
			token, _, err := NewTokens(&transport.Credentials{Host: "h", DeviceID: "d", Sign: sign}, &c,
				time.Minute).Get(t.Context())
			require.NoError(t, err, "the clock is right now")
			require.WithinDuration(t, time.Now().Add(time.Hour), token.Expires, time.Second)

			sent := time.Now()
			time.Sleep(20 * time.Second)
			c.Learn(says(-10*time.Second), nil, sent, time.Now())
			skew, known := c.Skew()
			require.True(t, known)
			require.Zero(t, skew, "what was learnt before counts no more")
		})
	}
}

// The next answer corrects a step that is within the tolerance of tokens.
func TestASmallStepIsLearnt(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var c Clock
		c.Learn(says(10*time.Minute), nil, time.Now(), time.Now())
		e := *c.latest.Load()
		e.wall = e.wall.Add(30 * time.Second)
		c.latest.Store(&e)
		_, known := c.Skew()
		require.True(t, known)
		c.Learn(says(10*time.Minute+30*time.Second), nil, time.Now(), time.Now())
		skew, known := c.Skew()
		require.True(t, known)
		require.InDelta(t, 10*time.Minute+30*time.Second, skew, float64(2*resolution))
	})
}
