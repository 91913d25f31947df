package http_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	hubhttp "github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/netproxy"
)

// counting401 counts 401 answers in n.
func (h *scripted) counting401(n *int) {
	h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		if h.authorized(r) {
			return false
		}
		*n++
		refuse(w, 401003, "IotHubUnauthorized")
		return true
	}
}

// Tokens are renewed before they expire, day after day, and reused while they are valid.
func TestTokensAreRenewedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		refused := 0
		h.counting401(&refused)
		r := h.start(t, h.options())
		for i := range 240 {
			r.send(i, numbered(1)...)
			synctest.Wait()
			require.NoError(t, r.results()[uint16(i)])
			time.Sleep(6 * time.Minute)
		}
		require.Zero(t, refused)
		tokens := map[string]bool{}
		for _, s := range h.requests {
			tokens[s.header.Get("Authorization")] = true
		}
		require.Len(t, tokens, 27, "in a day, with 51 minutes each, seen every six")
	})
}

// Vector T10 of the Java SDK, for HTTP: a refused token that can be renewed. The SDK marks the
// error retryable for the whole operation time. Here a token that was made for an earlier request
// is replaced once, and a second refusal is final.
func TestARefusedTokenIsReplacedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		revoked, refused := "", 0
		h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			token := r.Header.Get("Authorization")
			if revoked != "all" && token != revoked {
				return false
			}
			refused++
			refuse(w, 401003, "IotHubUnauthorized")
			return true
		}
		r := h.start(t, h.options())
		time.Sleep(time.Second)
		h.change(func() { revoked = h.requests[0].header.Get("Authorization") })
		r.send(0, numbered(1)...)
		synctest.Wait()
		require.NoError(t, r.results()[0])
		require.Equal(t, 1, refused)

		time.Sleep(time.Second)
		h.change(func() { revoked = "all" })
		r.send(1, numbered(1)...)
		e := r.requireLoss(transport.Unauthorized)
		require.False(t, errfilter.Retryable(e))
		require.Equal(t, 3, refused, "the old one and a fresh one")
	})
	bubble(t, func(t *testing.T, h *scripted) { // a refused fresh token: no second attempt in the same request
		refused := 0
		h.counting401(&refused)
		_, err := h.dial(t, hubhttp.New(h.options()), h.creds(badKey))
		require.ErrorIs(t, err, transport.Unauthorized)
		require.Equal(t, 1, refused)
	})
	bubble(t, func(t *testing.T, h *scripted) { // no second attempt for a token that cannot be renewed
		refused := 0
		h.counting401(&refused)
		creds := h.creds(goodKey)
		token, err := creds.NewToken(t.Context())
		require.NoError(t, err)
		creds.Sign, creds.Token = nil, func(context.Context) (transport.Token, error) {
			return transport.Token{Text: token.Text, Expires: token.Expires, Fixed: true}, nil
		}
		r, err := h.dial(t, hubhttp.New(h.options()), creds)
		require.NoError(t, err)
		time.Sleep(61 * time.Minute)
		r.send(0, numbered(1)...)
		r.requireLoss(transport.Unauthorized)
		require.Equal(t, 1, refused)
	})
}

// A failing token source is not called again for a while as long as the old token is valid. After
// that, its error ends the session.
func TestATokenSourceThatFails(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		creds := h.creds(goodKey)
		own := *creds
		down, asked := false, 0
		creds.Sign, creds.Token = nil, func(ctx context.Context) (transport.Token, error) {
			asked++
			if down {
				return transport.Token{}, errSource
			}
			return own.NewToken(ctx)
		}
		r, err := h.dial(t, hubhttp.New(h.options()), creds)
		require.NoError(t, err)
		down = true
		time.Sleep(55 * time.Minute)
		for i := range 25 {
			r.send(i, numbered(1)...)
			time.Sleep(10 * time.Second)
		}
		require.Len(t, r.results(), 25)
		require.Equal(t, 1+9, asked, "every half a minute")
		time.Sleep(time.Minute)
		r.send(100, numbered(1)...)
		e := r.requireLoss(transport.Network)
		require.ErrorIs(t, e, errSource)
	})
}

// A token source that hangs costs one time limit: the old token serves as long as it is valid. Then
// the session ends.
func TestATokenSourceThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		creds := h.creds(goodKey)
		own, asked := *creds, 0
		creds.Sign, creds.Token = nil, func(ctx context.Context) (transport.Token, error) {
			if asked++; asked > 1 {
				<-ctx.Done()
				return transport.Token{}, ctx.Err()
			}
			return own.NewToken(ctx)
		}
		r, err := h.dial(t, hubhttp.New(h.polling(time.Minute)), creds)
		require.NoError(t, err)
		require.NoError(t, r.subscribe())
		time.Sleep(55 * time.Minute)
		h.message("hello", nil)
		r.send(0, numbered(1)...)
		time.Sleep(3 * time.Minute)
		require.Equal(t, []string{"hello"}, r.bodies())
		require.NoError(t, r.results()[0])
		time.Sleep(2 * time.Hour)
		r.requireLoss(transport.Timeout)
	})
}

var errSource = errors.New("no token today")

// A device whose clock is behind by more than the lifetime of a token gets none by the hub's Date:
// by the device's clock, the token would live too long. The error is ClockUnset.
func TestAClockThatIsTooLateIsNotSet(t *testing.T) {
	for _, off := range []time.Duration{-3 * time.Hour, -90 * time.Minute} {
		bubble(t, func(t *testing.T, h *scripted) {
			testkit.StartClock()
			refused := 0
			h.counting401(&refused)
			creds := h.creds(goodKey)
			creds.Now = func() time.Time { return time.Now().Add(off) }
			tr := hubhttp.New(h.options())
			_, err := h.dial(t, tr, creds)
			require.ErrorIs(t, err, transport.ClockUnset)
			require.Equal(t, 1, refused)
			skew, known := tr.Skew()
			require.True(t, known, "the hub told it")
			require.Zero(t, skew)

			// With the hub's clock as its own, the device is not behind.
			creds.Now = tr.Now
			_, err = h.dial(t, tr, creds)
			require.NoError(t, err)
			require.Equal(t, 1, refused)
		})
	}
}

// The process's own clock is wrong: then Skew is its error. Now follows the hub's clock if the
// process's is ahead, and not if it is behind.
func TestTheSkewIsThatOfTheProcess(t *testing.T) {
	for _, ahead := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		bubble(t, func(t *testing.T, h *scripted) {
			testkit.StartClock()
			h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
				time.Sleep(50 * time.Second) // half of it may be on the way back
				w.WriteHeader(204)
				return true
			}
			tr := hubhttp.New(h.options())
			_, err := h.dial(t, tr, h.creds(goodKey))
			require.NoError(t, err)
			skew, known := tr.Skew()
			require.True(t, known)
			require.InDelta(t, ahead, skew, float64(27*time.Second))
			require.WithinDuration(t, time.Now().Add(min(ahead, 0)), tr.Now(), 27*time.Second)
		})
	}
}

// A clock in 1970: the client requests the hub's time before it makes a token. The answer counts
// only if TLS has verified the sender (TestTLSAlertsAreKnownAtDial).
func TestAnUnsetClockIsNotSetByAnybody(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		creds := h.creds(goodKey)
		creds.Now = func() time.Time { return time.Unix(1000, 0) }
		_, err := h.dial(t, hubhttp.New(h.options()), creds)
		require.ErrorIs(t, err, transport.ClockUnset)
		require.Len(t, h.requests, 1)
		require.Empty(t, h.requests[0].header.Get("Authorization"))
	})
	bubble(t, func(t *testing.T, h *scripted) { // a hub without a Date
		h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			w.Header()["Date"] = nil
			refuse(w, 401003, "")
			return true
		}
		creds := h.creds(goodKey)
		creds.Now = func() time.Time { return time.Unix(1000, 0) }
		_, err := h.dial(t, hubhttp.New(h.options()), creds)
		require.ErrorIs(t, err, transport.ClockUnset)
		require.Len(t, h.requests, 1)
	})
}

func TestWrongOptions(t *testing.T) {
	for want, o := range map[string]hubhttp.Options{
		"Timeout":      {Timeout: -1},
		"IdleTimeout":  {IdleTimeout: -1},
		"PollInterval": {PollInterval: time.Millisecond},
		"Batch":        {Batch: 501},
		"Addr":         {Network: netopt.Options{Addr: "nowhere"}},
		"ProductInfo":  {Network: netopt.Options{ProductInfo: "a\r\nb"}},
		"both":         {Network: netopt.Options{Plaintext: true, Certificate: netopt.CertificateFiles("a", "b")}},
	} {
		_, err := hubhttp.New(&o).Dial(t.Context(), &transport.Config{Creds: &transport.Credentials{Host: "h",
			DeviceID: "d"}})
		require.ErrorIs(t, err, transport.Invalid, want)
		require.ErrorContains(t, err, want)
	}
	_, err := hubhttp.New(nil).Dial(t.Context(), &transport.Config{Creds: &transport.Credentials{Host: "h",
		DeviceID: "d"}})
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "nothing proves the identity")
	_, err = hubhttp.New(nil).Dial(t.Context(), &transport.Config{Creds: &transport.Credentials{Host: "h"}})
	require.ErrorIs(t, err, transport.Invalid)
}

// The session passes the hub's URL to Options.Proxy and connects through the proxy it returns.
func TestRequestsGoThroughTheProxy(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		through := memconn.NewNetwork("proxy.example.test:3128")
		done := make(chan struct{})
		var asked atomic.Pointer[http.Request]
		go func() {
			defer close(done)
			for {
				c, err := through.Accept()
				if err != nil {
					return
				}
				q, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					continue
				}
				asked.Store(q)
				up, err := h.network.DialContext(context.Background(), "tcp", q.Host)
				if err != nil {
					continue
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
				go func() { _, _ = io.Copy(up, c); _ = up.Close() }()
				go func() { _, _ = io.Copy(c, up); _ = c.Close() }()
			}
		}()
		t.Cleanup(func() { _ = through.Close(); <-done })
		o := &hubhttp.Options{Network: netopt.Options{Plaintext: true, Dial: func(ctx context.Context, network,
			addr string) (net.Conn, error) {
			require.Equal(t, "proxy.example.test:3128", addr)
			return through.DialContext(ctx, network, addr)
		}, Proxy: netproxy.Choose(func(hub *url.URL) (*url.URL, error) {
			require.Equal(t, hostName, hub.Host)
			return url.Parse("http://user:secret@proxy.example.test:3128")
		})}}
		r := h.start(t, o)
		r.send(0, numbered(1)...)
		synctest.Wait()
		require.NoError(t, r.results()[0])
		require.Equal(t, hostName+":80", asked.Load().Host)
		require.True(t, strings.HasPrefix(asked.Load().Header.Get("Proxy-Authorization"), "Basic "))
		r.close()
	})
	for what, proxy := range map[string]func(*url.URL) (*url.URL, error){
		"an error": func(*url.URL) (*url.URL, error) { return nil, errors.New("proxy http://user:secret@x") },
		"no scheme": func(*url.URL) (*url.URL, error) {
			return &url.URL{Host: "x", User: url.UserPassword("user", "secret")}, nil
		},
	} {
		bubble(t, func(t *testing.T, h *scripted) {
			o := h.options()
			o.Network.Proxy = netproxy.Choose(proxy)
			_, err := h.dial(t, hubhttp.New(o), h.creds(goodKey))
			require.ErrorIs(t, err, transport.Invalid, what)
			require.NotContains(t, err.Error(), "secret")
		})
	}
	bubble(t, func(t *testing.T, h *scripted) {
		o := h.options()
		o.Network.Proxy = netproxy.Choose(func(*url.URL) (*url.URL, error) { return nil, nil })
		h.start(t, o)
	})
}
