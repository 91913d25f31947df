package dpshttp_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const (
	ownKey    = "icIMXjwja1qYKoscSejYuXU0CWOBN4+SKhfWq13SBnA="
	assigning = `{"operationId":"4.d0.a/b c","status":"assigning"}`
	assigned  = `{"operationId":"op-1","status":"assigned","registrationState":{` +
		`"assignedHub":"hub1.example.test","deviceId":"dev-1","status":"assigned"}}`
)

func identity(t testing.TB) *provisioning.Identity {
	sign, err := transport.SharedKey(ownKey)
	require.NoError(t, err)
	return &provisioning.Identity{Endpoint: "dps.example.test", IDScope: "0ne00ABCDEF", RegistrationID: "reg:0001",
		Sign: sign}
}

// served runs f in fake time against a peer that answers with the handler.
func served(t *testing.T, handler http.HandlerFunc, f func(t *testing.T, o *netopt.Options)) {
	testkit.In2030(t, func(t *testing.T) {
		network := memconn.NewNetwork("dps.example.test:80")
		server := &http.Server{Handler: handler}
		done := make(chan struct{})
		go func() {
			_ = server.Serve(network)
			close(done)
		}()
		f(t, &netopt.Options{Plaintext: true, Dial: network.DialContext})
		_ = server.Close()
		<-done
	})
}

func register(t *testing.T, o *netopt.Options, opt *provisioning.Options) (*provisioning.Assignment, error) {
	t.Helper()
	c, err := provisioning.New(identity(t), dpshttp.New(o), opt)
	require.NoError(t, err)
	return c.Register(t.Context())
}

func TestRequests(t *testing.T) {
	var lines []string
	var conns []string
	served(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		conns = append(conns, r.RemoteAddr)
		lines = append(lines, r.Method+" "+r.RequestURI+" "+r.Host+" "+r.Header.Get("Content-Type")+" "+string(body))
		require.True(t, strings.HasPrefix(r.Header.Get("Authorization"),
			"SharedAccessSignature sr=0ne00ABCDEF%2Fregistrations%2Freg%3A0001&sig="), r.Header)
		require.True(t, strings.HasSuffix(r.Header.Get("Authorization"), "&skn=registration"))
		require.Equal(t, "application/json", r.Header.Get("Accept"))
		require.Contains(t, r.Header.Get("User-Agent"), "Hubline")
		if len(lines) < 3 {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(202)
			_, _ = io.WriteString(w, assigning)
			return
		}
		_, _ = io.WriteString(w, assigned)
	}, func(t *testing.T, o *netopt.Options) {
		began := time.Now()
		a, err := register(t, o, &provisioning.Options{Payload: []byte(`{"a":1}`)})
		require.NoError(t, err)
		require.Equal(t, "hub1.example.test", a.Hub)
		require.Equal(t, 6*time.Second, time.Since(began))
		poll := "GET /0ne00ABCDEF/registrations/reg%3A0001/operations/4.d0.a%2Fb%20c?api-version=2019-03-31 " +
			"dps.example.test  "
		require.Equal(t, []string{"PUT /0ne00ABCDEF/registrations/reg%3A0001/register?api-version=2019-03-31 " +
			"dps.example.test " +
			`application/json {"registrationId":"reg:0001","payload":{"a":1}}`, poll, poll}, lines)
		require.Equal(t, conns[0], conns[2], "one connection")
	})
}

func TestADateInRetryAfterIsOneOfTheServicesClock(t *testing.T) {
	n := 0
	served(t, func(w http.ResponseWriter, _ *http.Request) {
		if n++; n == 1 {
			w.Header().Set("Date", "Thu, 01 Jan 2026 00:00:00 GMT")
			w.Header().Set("Retry-After", "Thu, 01 Jan 2026 00:02:00 GMT")
			w.WriteHeader(503)
			return
		}
		_, _ = io.WriteString(w, assigned)
	}, func(t *testing.T, o *netopt.Options) {
		began := time.Now()
		_, err := register(t, o, nil)
		require.NoError(t, err)
		require.Equal(t, 2*time.Minute, time.Since(began))
	})
}

// A connection that the service closed between two polls is replaced.
func TestAClosedConnectionIsReplaced(t *testing.T) {
	n := 0
	served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		if n++; n == 1 {
			w.WriteHeader(202)
			_, _ = io.WriteString(w, assigning)
			return
		}
		_, _ = io.WriteString(w, assigned)
	}, func(t *testing.T, o *netopt.Options) {
		var failures []error
		_, err := register(t, o, &provisioning.Options{OnEvent: func(e provisioning.Event) {
			if e.Err != nil {
				failures = append(failures, e.Err)
			}
		}})
		require.NoError(t, err)
		require.Empty(t, failures)
	})
}

func TestRefusedAndOddPeers(t *testing.T) {
	for name, row := range map[string]struct {
		answer string
		kind   transport.Kind
	}{
		"redirection": {"HTTP/1.1 302 Found\r\nLocation: http://other.example.test/\r\nContent-Length: 0\r\n\r\n",
			transport.Protocol},
		"not HTTP":      {"220 mail.example.test ESMTP\r\n\r\n", transport.Protocol},
		"refused":       {"HTTP/1.1 401 x\r\nContent-Length: 20\r\n\r\n{\"errorCode\":401002}", transport.Unauthorized},
		"not enrolled":  {"HTTP/1.1 404 x\r\nContent-Length: 20\r\n\r\n{\"errorCode\":404201}", transport.NotFound},
		"endless error": {"HTTP/1.1 404 x\r\n\r\n" + strings.Repeat("x", 300<<10), transport.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				network := memconn.NewNetwork("dps.example.test:80")
				go func() {
					c, err := network.Accept()
					if err != nil {
						return
					}
					_, _ = c.Read(make([]byte, 4096))
					_, _ = io.WriteString(c, row.answer)
					_, _ = io.Copy(io.Discard, c)
					_ = c.Close()
				}()
				_, err := register(t, &netopt.Options{Plaintext: true, Dial: network.DialContext},
					&provisioning.Options{Policy: retrypolicy.NoRetry{}})
				require.ErrorIs(t, err, row.kind, "%v", err)
				require.Equal(t, transport.OpRegister, transport.Find(err).Op)
				_ = network.Close()
				synctest.Wait()
			})
		})
	}
}

func TestWrongOptionsAreInvalid(t *testing.T) {
	for field, o := range map[string]*netopt.Options{
		"Addr":         {Addr: "x"},
		"WriteTimeout": {WriteTimeout: time.Second},
		"ProductInfo":  {ProductInfo: "a\nb"},
	} {
		_, err := register(t, o, nil)
		require.ErrorIs(t, err, transport.Invalid, field)
		require.ErrorContains(t, err, field)
	}
}

// Garbage from a service that spoke HTTP before is damage on the way, and repeated. From the first
// byte on it is another protocol, which is final.
func TestGarbageAfterAnAnswerIsRepeated(t *testing.T) {
	for _, good := range []int{1, 0} {
		n := 0
		served(t, func(w http.ResponseWriter, _ *http.Request) {
			n++
			switch {
			case n <= good:
				w.WriteHeader(202)
				_, _ = io.WriteString(w, assigning)
			case n == good+1:
				conn, _, err := w.(http.Hijacker).Hijack()
				if err == nil {
					_, _ = io.WriteString(conn, "\x00\x00\x00\x04 garbage\r\n\r\n")
					_ = conn.Close()
				}
			default:
				_, _ = io.WriteString(w, assigned)
			}
		}, func(t *testing.T, o *netopt.Options) {
			_, err := register(t, o, nil)
			if good == 0 {
				require.ErrorIs(t, err, transport.Protocol)
				require.ErrorContains(t, err, "does not speak HTTP")
				return
			}
			require.NoError(t, err)
			require.Equal(t, 3, n)
		})
	}
}

// A page says nothing about the key, the enrollment or the ID scope.
func TestAPageIsNoRefusalOfTheService(t *testing.T) {
	for _, status := range []int{302, 401, 403, 404, 405, 407, 451} {
		served(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "\n<html>sign in to the network</html>")
		}, func(t *testing.T, o *netopt.Options) {
			_, err := register(t, o, nil)
			require.ErrorIs(t, err, transport.Protocol)
			require.ErrorContains(t, err, "a proxy or a captive portal may have answered")
			require.NotContains(t, err.Error(), "check the key")
		})
	}
}
