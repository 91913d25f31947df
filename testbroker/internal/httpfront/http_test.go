package httpfront_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestTelemetryOverHTTP(t *testing.T) {
	for name, way := range hubtest.WebWays(t) {
		t.Run(name, func(t *testing.T) {
			h, d := hubtest.NewHub(t, nil)
			p, major := way(t, h, hubtest.Token(d))
			r := p.Post("/devices/dev-1/messages/events"+hubtest.Version, `{"celsius":21}`,
				"iothub-messageid", "m-1", "IoTHub-CorrelationId", "c-1", "iothub-contenttype", "application/json",
				"iothub-app-level", "high temp", "DT-Subject", "thermostat1",
				"iothub-to", "/devices/dev-1/messages/events", "Content-Type", "application/octet-stream")
			require.Equal(t, 204, r.StatusCode, r.Text)
			require.Equal(t, major, r.ProtoMajor)
			for i := range 3 {
				p.Send(fmt.Sprint(i))
			}
			log := h.Messages()
			require.Len(t, log, 4)
			m := log[0]
			require.Equal(t, hubdata.Message{
				DeviceID: "dev-1", MessageID: "m-1", CorrelationID: "c-1", ContentType: "application/json",
				Component: "thermostat1", To: "/devices/dev-1/messages/events",
				System: []hubdata.Property{
					{Name: "$.sub", Value: "thermostat1"}, {Name: "$.ct", Value: "application/json"},
					{Name: "$.cid", Value: "c-1"}, {Name: "$.mid", Value: "m-1"},
					{Name: "$.to", Value: "/devices/dev-1/messages/events"},
				},
				Properties: []hubdata.Property{{Name: "level", Value: "high temp"}}, Body: []byte(`{"celsius":21}`),
				Protocol: hubdata.HTTP,
				Topic:    "/devices/dev-1/messages/events", QoS: 1, Connection: 1, Received: m.Received, Sequence: 1,
			}, m)
			require.EqualValues(t, 1, log[3].Connection, "the connection is kept")
			require.Equal(t, 1, h.Connections("dev-1"))
			require.Equal(t, 0, h.Connections("dev-2"))
		})
	}
}

func TestHTTPAuthentication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []string
		h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: func(e event.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e.String())
		}})
		other := hubtest.AddDevice(t, h, "dev-2")
		mod := hubtest.AddModule(t, h, "dev-1", "mod-1")
		odd := hubtest.AddDevice(t, h, "a+b#c%41")
		policy := hubtest.AddPolicy(t, h, "device")
		p := hubtest.OverHTTP(t, h, d)
		for name, c := range map[string]struct {
			token, path string
			code        int // zero = accepted
		}{
			"own":                            {hubtest.Token(d), "/devices/dev-1/messages/events", 0},
			"module":                         {hubtest.Token(mod), "/devices/dev-1/modules/mod-1/messages/events", 0},
			"policy":                         {hubtest.PolicyToken(policy, h.HostName()), "/devices/dev-2/messages/events", 0},
			"odd id":                         {hubtest.Token(odd), "/devices/a+b%23c%2541/messages/events", 0},
			"of another":                     {hubtest.Token(other), "/devices/dev-1/messages/events", 401002},
			"none":                           {"", "/devices/dev-1/messages/events", 401003},
			"rubbish":                        {"Bearer abc", "/devices/dev-1/messages/events", 401003},
			"unknown device":                 {hubtest.Token(d), "/devices/dev-9/messages/events", 404001},
			"unknown module":                 {hubtest.Token(d), "/devices/dev-1/modules/mod-9/messages/events", 404010},
			"impossible device id":           {hubtest.Token(d), "/devices/a%2Fb/messages/events", 400004},
			"module with the device's token": {hubtest.Token(d), "/devices/dev-1/modules/mod-1/messages/events", 401003},
		} {
			p.Token = c.token
			r := p.Post(c.path+hubtest.Version, "x")
			if c.code == 0 {
				require.Equal(t, 204, r.StatusCode, "%s: %s", name, r.Text)
				continue
			}
			r.Refused(t, c.code)
		}
		require.Equal(t, 4, h.Len())
		require.Contains(t, events, "#1 dev-1 connected")
		require.Contains(t, events,
			`#1 dev-1 refused "POST /devices/dev-1/messages/events" with status 401: `+
				"token does not begin with SharedAccessSignature")

		p.Token = hubtest.Token(d)
		require.NoError(t, h.SetEnabled("dev-1", false))
		require.Contains(t, events, "#1 dev-1 disconnected: device is disabled")
		p.Post("/devices/dev-1/messages/events"+hubtest.Version, "x").Refused(t, 403012)
		require.NoError(t, h.SetEnabled("dev-1", true))
		p.Send("x")
		time.Sleep(2 * time.Hour) // after the token's expiry
		p.Post("/devices/dev-1/messages/events"+hubtest.Version, "x").Refused(t, 401003)
		require.NoError(t, h.Close())
		synctest.Wait()
		require.Contains(t, events, "#1 dev-2 disconnected: client sent no request in time")
	})
}

func TestCertificatesOverHTTP(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		cert := testbroker.NewClientCert("dev-x", time.Time{}, time.Time{})
		_, err := h.AddDeviceX509("dev-x", testbroker.Thumbprint(cert.Leaf))
		require.NoError(t, err)
		for _, config := range []func(*tls.Config){
			func(c *tls.Config) { c.Certificates = []tls.Certificate{cert} },
			func(c *tls.Config) {
				c.Certificates = []tls.Certificate{testbroker.NewClientCert("dev-x", time.Time{}, time.Time{})}
			},
			func(c *tls.Config) {},
		} {
			secure := h.ClientTLS()
			config(secure)
			p := hubtest.NewPoster(t, h.Dial(testbroker.PortHTTPS), secure, "")
			r := p.Post("/devices/dev-x/messages/events"+hubtest.Version, "x")
			if len(secure.Certificates) == 1 && &secure.Certificates[0].Certificate[0][0] == &cert.Certificate[0][0] {
				require.Equal(t, 204, r.StatusCode, r.Text)
			} else {
				r.Refused(t, 401003)
			}
			p.Post("/devices/dev-1/messages/events"+hubtest.Version, "x").Refused(t, 401003)
		}
		require.Equal(t, 1, h.Len())
	})
}

func TestWhatHTTPRefuses(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.OverHTTP(t, h, d)
		const events = "/devices/dev-1/messages/events"
		big := strings.Repeat("x", hubdata.MaxMessage)
		for name, c := range map[string]struct {
			method, path, body string
			header             []string
			code               int
		}{
			"no version":           {"POST", events, "x", nil, 400001},
			"version unknown":      {"POST", events + "?api-version=1999-01-01", "x", nil, 400001},
			"two versions":         {"POST", events + hubtest.Version + "&api-version=2021-04-12", "x", nil, 400001},
			"bad query":            {"POST", events + "?api-version=%zz", "x", nil, 400004},
			"path":                 {"POST", "/devices/dev-1/messages" + hubtest.Version, "x", nil, 404000},
			"path with more":       {"POST", events + "/more" + hubtest.Version, "x", nil, 404000},
			"root":                 {"GET", "/", "", nil, 404000},
			"method":               {"GET", events + hubtest.Version, "", nil, 405000},
			"host":                 {"POST", events + hubtest.Version, "x", []string{"Host", "other.example.test"}, 404000},
			"too large":            {"POST", events + hubtest.Version, big + "x", nil, 413001},
			"property makes it so": {"POST", events + hubtest.Version, big, []string{"iothub-app-a", "b"}, 413001},
			"subject makes it so":  {"POST", events + hubtest.Version, big, []string{"dt-subject", "c"}, 413001},
			"subject not UTF-8":    {"POST", events + hubtest.Version, "x", []string{"dt-subject", "\xff"}, 400004},
			"long message id":      {"POST", events + hubtest.Version, "x", []string{"iothub-messageid", big[:129]}, 400004},
			"nameless property":    {"POST", events + hubtest.Version, "x", []string{"iothub-app-", "b"}, 400004},
			"not UTF-8":            {"POST", events + hubtest.Version, "x", []string{"iothub-app-a", "\xff"}, 400004},
			"to another": {"POST", events + hubtest.Version, "x", []string{"iothub-to", "/devices/dev-2/messages/events"},
				400004},
			"compressed":    {"POST", events + hubtest.Version, "x", []string{"Content-Encoding", "gzip"}, 415000},
			"no media type": {"POST", events + hubtest.Version, "x", []string{"Content-Type", ";;"}, 415000},
		} {
			t.Log(name)
			p.Do(c.method, c.path, c.body, c.header...).Refused(t, c.code)
		}
		require.Equal(t, "POST", p.Do("GET", events+hubtest.Version, "").Header.Get("Allow"))
		require.Zero(t, h.Len())
		p.Send(big)
		p.Send("")
		r := p.Post("/DEVICES/dev-1/Messages/EVENTS"+hubtest.Version, "x", "iothub-to",
			"%2Fdevices%2Fdev-1%2Fmessages%2Fevents")
		require.Equal(t, 204, r.StatusCode, r.Text)

		// A body of unknown length.
		r2, err := http.NewRequest("POST", p.Base+events+hubtest.Version, struct{ io.Reader }{strings.NewReader(big + "x")})
		require.NoError(t, err)
		r2.Header.Set("Authorization", p.Token)
		answer, err := p.Client.Do(r2)
		require.NoError(t, err)
		require.Equal(t, 413, answer.StatusCode)
		answer.Body.Close()
		require.Equal(t, 3, h.Len())
	})
}

func TestDateIsTheHubs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
		h, err := testbroker.New(&testbroker.Options{Now: func() time.Time {
			return clock
		}, HTTP: testbroker.HTTPOptions{TextErrors: true}})
		require.NoError(t, err)
		defer h.Close()
		p := hubtest.NewPoster(t, h.Dial(testbroker.PortHTTP), nil, "")
		r := p.Post("/devices/dev-1/messages/events"+hubtest.Version, "x")
		require.Equal(t, "Tue, 06 May 2031 07:08:09 GMT", r.Header.Get("Date"))
		require.Equal(t, 404, r.StatusCode)
		require.Equal(t,
			`{"Message":"ErrorCode:DeviceNotFound;testbroker: no such identity: dev-1","ExceptionMessage":"Tracking ID:1-1"}`,
			r.Text)
		p.Client.CloseIdleConnections()
	})
}

// The hub ends a deliberately slow request in time.
func TestSlowClientsOverHTTP(t *testing.T) {
	for name, c := range map[string]struct {
		send string
		want time.Duration
		code string
	}{
		"no request":  {"", time.Minute, ""},
		"half a head": {"POST /devices/dev-1/messages/events HTTP/1.1\r\nHost: hub.example.test\r\nA: ", time.Minute, ""},
		"half a body": {"POST /devices/dev-1/messages/events?api-version=2021-04-12 HTTP/1.1\r\nHost: hub.example.test\r\n" +
			"Content-Length: 10\r\nAuthorization: %s\r\n\r\nabc", 2 * time.Minute, "HTTP/1.1 400 "},
		"second request": {
			"POST /devices/dev-1/messages/events?api-version=2021-04-12 HTTP/1.1\r\nHost: hub.example.test\r\n" +
				"Content-Length: 1\r\nAuthorization: %s\r\n\r\na", 4 * time.Minute, "HTTP/1.1 204 "},
	} {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			var ended error
			h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: func(e event.Event) { ended = e.Err }})
			conn := hubtest.DialPort(t, h, testbroker.PortHTTP)
			defer conn.Close()
			start := time.Now()
			_, err := io.WriteString(conn, strings.ReplaceAll(c.send, "%s", hubtest.Token(d)))
			require.NoError(t, err)
			all, err := io.ReadAll(conn)
			require.NoError(t, err)
			require.Equal(t, c.want, time.Since(start).Truncate(time.Second))
			require.True(t, strings.HasPrefix(string(all), c.code), "%q", all)
			synctest.Wait()
			require.ErrorContains(t, ended, "no request in time")
		})
	}
}

func TestCloseEndsRequests(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.NewPoster(t, h.Dial(testbroker.PortHTTPS), h.ClientTLS(), hubtest.Token(d))
		p.Send("x")
		r, w := io.Pipe()
		defer w.Close()
		request, err := http.NewRequestWithContext(t.Context(), "POST",
			p.Base+"/devices/dev-1/messages/events"+hubtest.Version, r)
		require.NoError(t, err)
		request.Header.Set("Authorization", p.Token)
		failed := make(chan error, 1)
		go func() {
			_, err := p.Client.Do(request)
			failed <- err
		}()
		time.Sleep(time.Second)
		start := time.Now()
		require.NoError(t, h.Close())
		require.Zero(t, time.Since(start))
		require.Error(t, <-failed)
		_, err = h.Dial(testbroker.PortHTTP)(t.Context(), "tcp", "hub")
		require.True(t, errors.Is(err, testbroker.ErrClosed) || err != nil)
	})
}

// Over HTTP/2 a missing body times out too, and does not delay other requests on the connection.
func TestSlowStream(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.NewPoster(t, h.Dial(testbroker.PortHTTPS), h.ClientTLS(), hubtest.Token(d))
		body, w := io.Pipe()
		defer w.Close()
		r, err := http.NewRequestWithContext(t.Context(), "POST",
			p.Base+"/devices/dev-1/messages/events"+hubtest.Version, body)
		require.NoError(t, err)
		r.Header.Set("Authorization", p.Token)
		start := time.Now()
		answered := make(chan int)
		go func() {
			answer, err := p.Client.Do(r)
			if err != nil {
				answered <- 0
				return
			}
			answer.Body.Close()
			answered <- answer.StatusCode
		}()
		w.Write([]byte("half"))
		p.Send("x")
		require.Zero(t, time.Since(start))
		require.Equal(t, 400, <-answered)
		require.Equal(t, 2*time.Minute, time.Since(start))
		require.Equal(t, 1, h.Len())
		require.EqualValues(t, 1, h.Messages()[0].Connection)
	})
}

// FuzzHTTP sends arbitrary bytes to the hub.
func FuzzHTTP(f *testing.F) {
	h, err := testbroker.New(nil)
	require.NoError(f, err)
	f.Cleanup(func() { h.Close() })
	d, err := h.AddDevice("dev-1")
	require.NoError(f, err)
	head := " HTTP/1.1\r\nHost: hub.example.test\r\nAuthorization: " + hubtest.Token(d) + "\r\n"
	for _, s := range []string{
		"POST /devices/dev-1/messages/events?api-version=2021-04-12" + head + "Content-Length: 1\r\n\r\nx",
		"POST /devices/dev-1/messages/events?api-version=2021-04-12" + head + "Content-Type: " + hubtest.BatchType +
			"\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n",
		"GET /devices/dev-1/messages/devicebound?api-version=2021-04-12" + head + "\r\n",
		"DELETE /devices/dev-1/messages/devicebound/x?reject&api-version=2021-04-12" + head + "If-Match: \"x\"\r\n\r\n",
		"GET /%24iothub/websocket" + head + "\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET //%2F%zz?%zz" + head + "\r\n",
		"\x16\x03\x01",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		conn := hubtest.DialPort(t, h, testbroker.PortHTTP)
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		conn.Write(p)
		conn.(interface{ CloseWrite() error }).CloseWrite()
		_, err = io.Copy(io.Discard, conn)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}

// Invalid HTTP/2 ends only its connection.
func TestBadHTTP2(t *testing.T) {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for name, c := range map[string]struct {
		send string
		want time.Duration
	}{
		"no preface":        {strings.Repeat("x", 100), 0},
		"no settings":       {preface, 10 * time.Second},
		"ping too short":    {preface + settings + "\x00\x00\x06\x06\x00\x00\x00\x00\x00abcdef", 0},
		"frame too long":    {preface + settings + "\xff\xff\xff\x00\x00\x00\x00\x00\x01", 0},
		"headers, no end":   {preface + settings + "\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82", 4 * time.Minute},
		"bad header block":  {preface + settings + "\x00\x00\x02\x01\x05\x00\x00\x00\x01\xff\xff", 0},
		"nothing behind it": {preface + settings, 4 * time.Minute},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
			raw := hubtest.DialPort(t, h, testbroker.PortHTTPS)
			config := h.ClientTLS()
			config.NextProtos = []string{"h2"}
			conn := tls.Client(raw, config)
			defer conn.Close()
			start := time.Now()
			_, err := io.WriteString(conn, c.send)
			require.NoError(t, err)
			io.Copy(io.Discard, conn)
			require.LessOrEqual(t, time.Since(start), c.want+2*time.Second)
			conn.Close()
			synctest.Wait()
			require.Zero(t, h.Connections(""))
		})
	}
}

// On real sockets Close leaves no goroutine, whatever the clients do.
func TestCloseOverHTTPSLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	h, d := hubtest.NewHub(t, nil)
	h.Inject(fault.Fault{Kind: fault.SwallowAnswer, Route: fault.RouteReceive, Times: -1})
	h.Inject(fault.Fault{Kind: fault.SlowAnswer, Route: fault.RouteTelemetry, Delay: time.Hour, After: 10,
		Times: -1})
	var clients []*hubtest.Poster
	var wg sync.WaitGroup
	for range 10 {
		for _, name := range []string{"TLS, HTTP/1.1", "TLS, HTTP/2", "TCP"} {
			p, _ := hubtest.WebWays(t)[name](t, h, hubtest.Token(d))
			clients = append(clients, p)
			wg.Go(func() { p.Try("POST", "/devices/dev-1/messages/events"+hubtest.Version, "x") })
			wg.Go(func() { p.Try("GET", hubtest.Inbound+hubtest.Version, "") })
		}
	}
	require.NoError(t, h.WaitMessages(t.Context(), 30))
	start := time.Now()
	require.NoError(t, h.Close())
	require.Less(t, time.Since(start), 10*time.Second)
	wg.Wait()
	for _, p := range clients {
		p.Client.CloseIdleConnections()
	}
	// One more, because Eventually runs the condition in a goroutine.
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 10*time.Second, 10*time.Millisecond,
		"%d goroutines, %d before", runtime.NumGoroutine(), before)
}
