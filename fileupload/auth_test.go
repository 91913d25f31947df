package fileupload_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// uploader returns another uploader for the rig's hub.
func (r *rig) uploader(t *testing.T, creds *transport.Credentials) *fileupload.Uploader {
	t.Helper()
	u, err := fileupload.New(creds, &fileupload.Options{BlockSize: 64 * kib, Network: netopt.Options{Plaintext: true,
		Dial: r.hub.Dial(testbroker.PortHTTP)},
		RetryPolicy: retrypolicy.NoRetry{}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, u.Close()) })
	return u
}

// A device whose clock is behind by less than TokenLife, or ahead, uploads without a refusal after
// the first answer.
func TestAWrongClockIsForgiven(t *testing.T) {
	for name, clock := range map[string]func() time.Time{
		"slow by 40 minutes": func() time.Time { return time.Now().Add(-40 * time.Minute) },
		"fast by weeks":      func() time.Time { return time.Now().Add(500 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, r *rig) {
				creds := credsOf(t, r.dev)
				creds.Now = clock
				u := r.uploader(t, creds)
				body := content(300 * kib)
				for range 3 { // an hour each: tokens are renewed by the hub's clock, too
					result, err := u.Upload(t.Context(), "a", &pausing{Reader: bytes.NewReader(body), pause: 12 * time.Minute}, -1)
					require.NoError(t, err)
					require.Zero(t, result.Retries)
					r.stored(t, "a", body)
				}
			})
		})
	}
}

// A device whose clock is further behind gets no token by the hub's Date, which anyone could forge.
// The upload waits until the clock is set.
func TestAnUploadWaitsForAClockThatIsLate(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		start := time.Now()
		creds := credsOf(t, r.dev)
		creds.Now = func() time.Time {
			if time.Since(start) < 10*time.Minute {
				return time.Now().Add(-500 * time.Hour)
			}
			return time.Now()
		}
		_, err := r.uploader(t, creds).Upload(t.Context(), "a", strings.NewReader("a"), 1)
		failed(t, err, transport.RetryExpired, "clock")
		require.ErrorIs(t, err, transport.ClockUnset)

		u, err := fileupload.New(creds, &fileupload.Options{Network: netopt.Options{Plaintext: true,
			Dial: r.hub.Dial(testbroker.PortHTTP)}})
		require.NoError(t, err)
		defer u.Close()
		_, err = u.Upload(t.Context(), "a", strings.NewReader("a"), 1)
		require.NoError(t, err)
		require.InDelta(t, 10*time.Minute, time.Since(start), float64(time.Minute))
	})
}

// A clock that is not set at all is replaced by the hub's if TLS has verified the hub.
func TestAnUnsetClockIsReplacedByThatOfAVerifiedHub(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		creds := credsOf(t, r.dev)
		creds.Now = func() time.Time { return time.Unix(1000, 0) }
		base := r.hub.ClientTLS()
		base.Time = time.Now
		u, err := fileupload.New(creds, &fileupload.Options{BlockSize: 64 * kib, Network: netopt.Options{TLS: base,
			Dial: r.hub.Dial(testbroker.PortHTTPS)},
			RetryPolicy: retrypolicy.NoRetry{}})
		require.NoError(t, err)
		defer u.Close()
		result, err := u.Upload(t.Context(), "a", strings.NewReader("a"), 1)
		require.NoError(t, err)
		require.Zero(t, result.Retries)
	})
}

// A token source that hangs costs one RequestTimeout while the old token is valid. Then it ends the
// attempt.
func TestATokenSourceThatHangs(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		creds, asked := credsOf(t, r.dev), 0
		own := *creds
		creds.Sign, creds.Token = nil, func(ctx context.Context) (transport.Token, error) {
			if asked++; asked > 1 {
				<-ctx.Done()
				return transport.Token{}, ctx.Err()
			}
			return own.NewToken(ctx)
		}
		u := r.uploader(t, creds)
		for range 2 {
			_, err := u.Upload(t.Context(), "a", strings.NewReader("a"), 1)
			require.NoError(t, err)
			time.Sleep(55 * time.Minute)
		}
		_, err := u.Upload(t.Context(), "a", strings.NewReader("a"), 1)
		require.ErrorIs(t, err, transport.Timeout)
	})
}

func TestARefusalNamesTheClockOnlyWhereItMayBeTheCause(t *testing.T) {
	inBubble(t, func(h *testbroker.Options, _ *fileupload.Options) {
		h.Now = func() time.Time { return time.Now().Add(9 * time.Hour) }
	}, func(t *testing.T, r *rig) {
		// A token source makes tokens by a clock that the library cannot correct, so the error names it.
		good := credsOf(t, r.dev)
		u := r.uploader(t, &transport.Credentials{Host: good.Host, DeviceID: good.DeviceID, Token: good.NewToken})
		_, err := u.Upload(t.Context(), "a", strings.NewReader("a"), 1)
		failed(t, err, transport.Unauthorized, "the device's clock is off by -9h0m0s")
	})
	inBubble(t, nil, func(t *testing.T, r *rig) {
		require.NoError(t, r.hub.SetKeys("dev-1", "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM=", "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM="))
		_, err := r.uploader(t, credsOf(t, r.dev)).Upload(t.Context(), "a", strings.NewReader("a"), 1)
		failed(t, err, transport.Unauthorized)
		require.NotContains(t, err.Error(), "clock")
	})
}

// A hub without a Date cannot set a clock.
func TestAClockThatNobodySets(t *testing.T) {
	var asked int
	s := script{"files": func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header()["Date"] = nil
		w.WriteHeader(http.StatusUnauthorized)
	}}
	_, err := s.with(t, 100*kib, func(c *transport.Credentials) {
		sign, err := transport.SharedKey("c2VjcmV0LWtleS1vZi10aGUtdGVzdHM=")
		require.NoError(t, err)
		c.Token, c.Sign = nil, sign
		c.Now = func() time.Time { return time.Unix(1000, 0) }
	}, nil)
	failed(t, err, transport.RetryExpired, "set the clock")
	require.ErrorIs(t, err, transport.ClockUnset)
	require.Equal(t, 1, asked, "for the time, without a token")
}

// A cachingSource is a token source with a cache: it makes a new token when called again after a
// refusal.
type cachingSource struct {
	tokens []transport.Token
	asked  int
}

func (k *cachingSource) token(context.Context) (transport.Token, error) {
	k.asked++
	return k.tokens[min(k.asked, len(k.tokens))-1], nil
}

// Vector T10 of the Java SDK, for uploads: a refused token that can be replaced is replaced once.
func TestARefusedTokenIsReplacedOnce(t *testing.T) {
	refused := func(times int, route fault.RouteKind) fault.Fault {
		return fault.Fault{Kind: fault.AnswerStatus, Route: route, Statuses: []int{401}, Times: times}
	}
	for _, c := range []struct {
		name     string
		fault    fault.Fault
		source   bool
		fixed    bool
		requests int // refused requests
		ok       bool
	}{
		{"at the end", refused(1, fault.RouteUploadDone), false, false, 1, true},
		{"at the end, from a source", refused(1, fault.RouteUploadDone), true, false, 1, true},
		{"at the end, twice", refused(-1, fault.RouteUploadDone), false, false, 2, false},
		{"at the end, twice, from a source", refused(-1, fault.RouteUploadDone), true, false, 2, false},
		{"at the end, and there is no other", refused(-1, fault.RouteUploadDone), true, true, 1, false},
		{"at the beginning, made just now", refused(-1, fault.RouteUpload), false, false, 1, false},
		{"at the beginning, from a source", refused(1, fault.RouteUpload), true, false, 1, true},
		{"at the beginning, twice, from a source", refused(-1, fault.RouteUpload), true, false, 2, false},
		{"at the beginning, and there is no other", refused(-1, fault.RouteUpload), true, true, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, r *rig) {
				creds := credsOf(t, r.dev)
				source := &cachingSource{}
				if c.source {
					for life := range 3 {
						token, err := (&transport.Credentials{Host: creds.Host, DeviceID: creds.DeviceID, Sign: creds.Sign,
							TokenLife: time.Duration(life+1) * time.Hour}).NewToken(t.Context())
						require.NoError(t, err)
						token.Fixed = c.fixed
						source.tokens = append(source.tokens, token)
					}
					creds.Sign, creds.Token = nil, source.token
				}
				in := r.hub.Inject(c.fault)
				result, err := r.uploader(t, creds).Upload(t.Context(), "a", &pausing{Reader: bytes.NewReader(content(100 * kib)),
					pause: time.Second}, -1)
				require.Equal(t, c.requests, in.Fired())
				if c.source && c.fixed {
					require.Equal(t, 1, source.asked)
				}
				if !c.ok {
					failed(t, err, transport.Unauthorized, "hub answered 401")
					return
				}
				require.NoError(t, err)
				require.Zero(t, result.Retries)
				if c.source {
					require.Equal(t, 2, source.asked)
				}
			})
		})
	}
}
