package hubhttp

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

// verified returns a TLS connection whose peer has a verified certificate, valid from now for life.
func verified(life time.Duration) *tls.ConnectionState {
	leaf := &x509.Certificate{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life)}
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
}

// unverified is the same with InsecureSkipVerify.
func unverified(life time.Duration) *tls.ConnectionState {
	s := verified(life)
	s.VerifiedChains = nil
	return s
}

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// inYear2030 runs f in 2030, a plausible time for a clock that is set.
func inYear2030(t *testing.T, f func(t *testing.T, creds *transport.Credentials)) {
	testkit.In2030(t, func(t *testing.T) {
		sign, err := transport.SharedKey("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
		require.NoError(t, err)
		f(t, &transport.Credentials{Host: "h", DeviceID: "d", Sign: sign, TokenLife: 10 * time.Minute})
	})
}

func TestNoDateMakesATokenOfASetClockLiveLonger(t *testing.T) {
	for name, peer := range map[string]*tls.ConnectionState{"no TLS": nil, "verified": verified(100 * year),
		"not verified": unverified(100 * year)} {
		for _, ahead := range []time.Duration{2 * time.Minute, 9 * time.Minute, time.Hour, 60 * year} {
			for _, follows := range []bool{false, true} {
				inYear2030(t, func(t *testing.T, creds *transport.Credentials) {
					var c Clock
					if follows {
						creds.Now = c.Now
					}
					tokens := NewTokens(creds, &c, time.Minute)
					c.Learn(says(ahead), peer, time.Now(), time.Now())
					token, _, err := tokens.Get(t.Context())
					require.NoError(t, err)
					require.LessOrEqual(t, time.Until(token.Expires), 10*time.Minute, "%s, %v ahead, follows %v", name, ahead, follows)

					tokens.Refused(t.Context(), token, true)
					token, _, err = tokens.Get(t.Context())
					require.NoError(t, err)
					require.LessOrEqual(t, time.Until(token.Expires), 10*time.Minute, "after a refusal: %s, %v ahead, follows %v",
						name, ahead, follows)
				})
			}
		}
	}
}

// The hub accepts a token until its own clock reaches the expiry. So a device that is behind by
// less than a token's life needs no correction, only timely renewal.
func TestALateClockIsForgivenByTheLifeOfTokens(t *testing.T) {
	inYear2030(t, func(t *testing.T, creds *transport.Credentials) {
		const late = 6 * time.Minute
		var c Clock
		creds.Now = func() time.Time { return time.Now().Add(-late) }
		tokens := NewTokens(creds, &c, time.Minute)
		c.Learn(says(0), nil, time.Now(), time.Now())
		for range 1000 {
			token, _, err := tokens.Get(t.Context())
			require.NoError(t, err)
			require.Positive(t, time.Until(token.Expires), "the hub sees it expired")
			require.False(t, c.Outlived(token))
			time.Sleep(7 * time.Second)
		}
	})
}

func TestAClockThatIsLateByMoreThanALifeIsNamed(t *testing.T) {
	inYear2030(t, func(t *testing.T, creds *transport.Credentials) {
		var c Clock
		creds.Now = func() time.Time { return time.Now().Add(-3 * time.Hour) }
		tokens := NewTokens(creds, &c, time.Minute)
		token, fresh, err := tokens.Get(t.Context())
		require.NoError(t, err)
		require.False(t, c.Outlived(token), "nobody has told the time")
		c.Learn(says(0), verified(year), time.Now(), time.Now())
		require.True(t, c.Outlived(token))
		require.False(t, tokens.Refused(t.Context(), token, fresh), "another one would be as late")
	})
}

// A clock that is ahead makes tokens that live too long, so the hub's clock shortens them, even
// without TLS.
func TestAClockThatIsAheadIsCorrected(t *testing.T) {
	inYear2030(t, func(t *testing.T, creds *transport.Credentials) {
		var c Clock
		creds.Now = func() time.Time { return time.Now().Add(500 * time.Hour) }
		c.Learn(says(0), nil, time.Now(), time.Now())
		token, _, err := NewTokens(creds, &c, time.Minute).Get(t.Context())
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(10*time.Minute), token.Expires, 2*time.Second)
	})
}

// An unset clock has no valid time, so the hub's time must be proven: by a verified peer, within
// the validity of its certificate.
func TestAnUnsetClockTakesTheHubsOnProof(t *testing.T) {
	for name, row := range map[string]struct {
		unset time.Time
		peer  *tls.ConnectionState
		ahead time.Duration
		takes bool
	}{
		"1970, verified": {time.Unix(1000, 0), verified(31 * year), 0, true},
		"2000, verified": {time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC), verified(31 * year), 0, true},
		"2000, no TLS":   {time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC), nil, 0, false},
		"2000, not verified": {time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC), unverified(31 * year), 0,
			false},
		"2000, beyond the certificate's life": {time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC), verified(31 * year), 60 * year,
			false},
		"the image's build time, verified": {time.Date(2029, 6, 1, 0, 0, 0, 0, time.UTC), verified(31 * year), 0, true},
		"the image's build time, not verified": {time.Date(2029, 6, 1, 0, 0, 0, 0, time.UTC), unverified(31 * year), 0,
			false},
	} {
		t.Run(name, func(t *testing.T) {
			inYear2030(t, func(t *testing.T, creds *transport.Credentials) {
				var c Clock
				creds.Now = func() time.Time { return row.unset }
				creds.Earliest = time.Date(2029, 6, 2, 0, 0, 0, 0, time.UTC)
				c.Learn(says(row.ahead), row.peer, time.Now(), time.Now())
				token, _, err := NewTokens(creds, &c, time.Minute).Get(t.Context())
				switch {
				case row.takes:
					require.NoError(t, err)
					require.WithinDuration(t, time.Now().Add(10*time.Minute), token.Expires, 2*time.Second)
				case row.unset.Year() < 2000:
					require.ErrorIs(t, err, transport.ClockUnset)
				default:
					require.NoError(t, err)
					require.Equal(t, row.unset.Add(10*time.Minute), token.Expires.UTC())
				}
			})
		})
	}
}

func TestAVerifiedEstimateIsNotReplacedByAnUnverifiedOne(t *testing.T) {
	inYear2030(t, func(t *testing.T, creds *transport.Credentials) {
		var c Clock
		c.Learn(says(-10*time.Minute), verified(31*year), time.Now(), time.Now())
		c.Learn(says(-3*time.Hour), nil, time.Now(), time.Now())
		skew, known := c.Skew()
		require.True(t, known)
		require.InDelta(t, -10*time.Minute, skew, float64(2*time.Second))
		c.Learn(says(-20*time.Minute), verified(31*year), time.Now(), time.Now())
		skew, _ = c.Skew()
		require.InDelta(t, -20*time.Minute, skew, float64(2*time.Second))
	})
}
