package edge_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const callerKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// gateway is a gateway whose answers a test writes.
type gateway struct {
	t       testing.TB
	network *memconn.Network
	server  *http.Server
	ended   chan struct{}
	over    chan struct{} // closed when the test is over
	// answer answers request n, counted from 0. Set before the first request.
	answer func(w http.ResponseWriter, n int)

	mu       sync.Mutex
	requests []received
	dials    int
	refuse   int // so many dials fail
	conns    []*memconn.Conn
}

// received is a request as it came.
type received struct {
	method, host, uri, body string
	header                  http.Header
	at                      time.Time
}

// ok answers with a result.
func ok(w http.ResponseWriter, _ int) { _, _ = io.WriteString(w, `{"status":200,"payload":{"a":1}}`) }

// hang does not answer.
func (g *gateway) hang(http.ResponseWriter, int) { <-g.over }

func newGateway(t testing.TB) *gateway {
	g := &gateway{t: t, network: memconn.NewNetwork("gateway.local:80"), ended: make(chan struct{}),
		over: make(chan struct{}), answer: ok}
	g.server = &http.Server{Handler: http.HandlerFunc(g.serve), DisableGeneralOptionsHandler: true}
	go func() {
		defer close(g.ended)
		_ = g.server.Serve(g.network)
	}()
	t.Cleanup(func() {
		close(g.over)
		_ = g.server.Close()
		_ = g.network.Close()
		<-g.ended
	})
	return g
}

func (g *gateway) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	g.mu.Lock()
	n := len(g.requests)
	g.requests = append(g.requests,
		received{r.Method, r.Host, r.RequestURI, string(body), r.Header.Clone(), time.Now()})
	answer := g.answer
	g.mu.Unlock()
	answer(w, n)
}

// dial connects to the gateway.
func (g *gateway) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	g.mu.Lock()
	g.dials++
	refused := g.refuse > 0
	if refused {
		g.refuse--
	}
	g.mu.Unlock()
	if refused {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
	}
	c, err := g.network.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns = append(g.conns, c.(*memconn.Conn))
	return c, nil
}

func (g *gateway) seen() []received {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]received{}, g.requests...)
}

func (g *gateway) dialed() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dials
}

// caller returns the credentials of the calling module.
func caller(t testing.TB) *transport.Credentials {
	sign, err := transport.SharedKey(callerKey)
	require.NoError(t, err)
	return &transport.Credentials{Host: "hub1.example.test", GatewayHost: "gateway.local", DeviceID: "edge-1",
		ModuleID: "mod-a", Sign: sign}
}

// invoker returns an Invoker for the gateway, closed by t.Cleanup. change may change the options.
func (g *gateway) invoker(creds *transport.Credentials, change func(*edge.InvokerOptions)) *edge.Invoker {
	o := &edge.InvokerOptions{Network: netopt.Options{Plaintext: true, Dial: g.dial}}
	if change != nil {
		change(o)
	}
	v, err := edge.NewInvoker(creds, o)
	require.NoError(g.t, err)
	g.t.Cleanup(func() { require.NoError(g.t, v.Close()) })
	return v
}

// callOf is a bubble with a gateway and an Invoker.
func callOf(t *testing.T, change func(*edge.InvokerOptions), f func(t *testing.T, g *gateway, v *edge.Invoker)) {
	t.Helper()
	testkit.In2030(t, func(t *testing.T) {
		g := newGateway(t)
		f(t, g, g.invoker(caller(t), change))
	})
}

var (
	modB   = edge.Target{ModuleID: "mod-b"}
	reboot = edge.Method{Name: "reboot"}
)

// The request has the form that edgeHub takes.
func TestInvokeSendsWhatAGatewayExpects(t *testing.T) {
	callOf(t, nil, func(t *testing.T, g *gateway, v *edge.Invoker) {
		for _, c := range []struct {
			target    edge.Target
			method    edge.Method
			uri, body string
		}{
			{modB, reboot, "/twins/edge-1/modules/mod-b/methods",
				`{"methodName":"reboot","payload":null,"responseTimeoutInSeconds":30,"connectTimeoutInSeconds":0}`},
			{edge.Target{DeviceID: "leaf#1"}, edge.Method{Name: `a"ü`, Payload: []byte(` {"x": "<é>"} `),
				ResponseTimeout: 5 * time.Second, ConnectTimeout: 299*time.Second + 1}, "/twins/leaf%231/methods",
				`{"methodName":"a\"ü","payload":{"x": "<é>"},"responseTimeoutInSeconds":5,"connectTimeoutInSeconds":300}`},
			{edge.Target{DeviceID: "edge-1", ModuleID: "$edgeAgent"}, edge.Method{Name: strings.Repeat("ä", 100),
				ResponseTimeout: 300 * time.Second, ConnectTimeout: 300 * time.Second},
				"/twins/edge-1/modules/%24edgeAgent/methods", `{"methodName":"` + strings.Repeat("ä", 100) +
					`","payload":null,"responseTimeoutInSeconds":300,"connectTimeoutInSeconds":300}`},
		} {
			result, err := v.Invoke(t.Context(), c.target, c.method)
			require.NoError(t, err)
			require.Equal(t, edge.Result{Status: 200, Payload: []byte(`{"a":1}`)}, result)
			got := g.seen()[len(g.seen())-1]
			require.Equal(t, "POST", got.method)
			require.Equal(t, "gateway.local", got.host)
			require.Equal(t, c.uri+"?api-version=2021-04-12", got.uri)
			require.Equal(t, c.body, got.body)
			require.Equal(t, "edge-1/mod-a", got.header.Get("x-ms-edge-moduleId"))
			require.Equal(t, "application/json; charset=utf-8", got.header.Get("Content-Type"))
			require.Contains(t, got.header.Get("User-Agent"), "Hubline")
			require.True(t, strings.HasPrefix(got.header.Get("Authorization"),
				"SharedAccessSignature sr=hub1.example.test%2Fdevices%2Fedge-1%2Fmodules%2Fmod-a&sig="))
		}
		require.Equal(t, 1, g.dialed(), "the connection is used again")
	})
}

// The callee's status is a result, whatever it is.
func TestTheCalleesAnswerIsTheResult(t *testing.T) {
	for answer, want := range map[string]edge.Result{
		`{"status":500,"payload":"no"}`:        {Status: 500, Payload: []byte(`"no"`)},
		` {"payload":[1, 2],"status":404} `:    {Status: 404, Payload: []byte(`[1, 2]`)},
		`{"status":-1}`:                        {Status: -1},
		`{"status":200,"payload":null}`:        {Status: 200, Payload: []byte("null")},
		`{"status":200,"more":{},"payload":0}`: {Status: 200, Payload: []byte("0")},
	} {
		callOf(t, nil, func(t *testing.T, g *gateway, v *edge.Invoker) {
			g.answer = func(w http.ResponseWriter, _ int) { _, _ = io.WriteString(w, answer) }
			got, err := v.Invoke(t.Context(), modB, reboot)
			require.NoError(t, err, answer)
			require.Equal(t, want, got, answer)
			require.Len(t, g.seen(), 1)
		})
	}
}

// Wrong arguments are refused before anything is dialed.
func TestInvokeRefusesWrongArguments(t *testing.T) {
	callOf(t, nil, func(t *testing.T, g *gateway, v *edge.Invoker) {
		payload := func(text string) edge.Method { return edge.Method{Name: "a", Payload: []byte(text)} }
		times := func(response, connect time.Duration) edge.Method {
			return edge.Method{Name: "a", ResponseTimeout: response, ConnectTimeout: connect}
		}
		invalid, longest, large := transport.Invalid, strings.Repeat("ä", 100), strings.Repeat("x", 128<<10)
		for name, c := range map[string]struct {
			target edge.Target
			method edge.Method
			kind   transport.Kind
			text   string
		}{
			"no target":                   {edge.Target{}, reboot, invalid, "Target is empty"},
			"a wrong id":                  {edge.Target{DeviceID: "a b"}, reboot, invalid, "has an id that no hub allows"},
			"a path":                      {edge.Target{ModuleID: "a/../b"}, reboot, invalid, "has an id that no hub allows"},
			"no name":                     {modB, edge.Method{}, invalid, "Name is empty"},
			"a long name":                 {modB, edge.Method{Name: longest + "ä"}, invalid, "101 characters; give 100"},
			"a name in bytes":             {modB, edge.Method{Name: "\xff"}, invalid, "Name is not valid UTF-8"},
			"no JSON":                     {modB, payload("{"), invalid, "Payload is not one JSON value"},
			"two values":                  {modB, payload("1 2"), invalid, "Payload is not one JSON value"},
			"only space":                  {modB, payload(" "), invalid, "Payload is not one JSON value"},
			"not UTF-8":                   {modB, payload("\"\xff\""), invalid, "in UTF-8"},
			"a large payload":             {modB, payload(`"` + large + `"`), transport.TooLarge, "limit of 131072"},
			"a short response time-out":   {modB, times(4999*time.Millisecond, 0), invalid, "give 5s to 5m0s, or 0 for 30s"},
			"a long response time-out":    {modB, times(5*time.Minute+1, 0), invalid, "ResponseTimeout is 5m0.000000001s"},
			"a negative response timeout": {modB, times(-1, 0), invalid, "ResponseTimeout is -1ns"},
			"a negative connect timeout":  {modB, times(0, -1), invalid, "ConnectTimeout is -1ns; give 0 to 5m0s"},
			"a long connect time-out":     {modB, times(0, 5*time.Minute+1), invalid, "ConnectTimeout"},
		} {
			_, err := v.Invoke(t.Context(), c.target, c.method)
			require.ErrorIs(t, err, c.kind, name)
			require.ErrorContains(t, err, c.text, name)
			require.NotErrorIs(t, err, transport.ErrOutcomeUnknown, name)
			require.False(t, errfilter.Retryable(err), name)
		}
		require.Zero(t, g.dialed())
		largest := []byte(`"` + strings.Repeat("x", 128<<10-2) + `"`)
		_, err := v.Invoke(t.Context(), modB, edge.Method{Name: "a", Payload: largest})
		require.NoError(t, err)
		require.Contains(t, g.seen()[0].body, string(largest))
	})
}

func TestNewInvokerRefusesWrongOptions(t *testing.T) {
	for name, c := range map[string]struct {
		creds *transport.Credentials
		o     edge.InvokerOptions
		text  string
	}{
		"no credentials":    {nil, edge.InvokerOptions{}, "credentials are nil"},
		"no module":         {&transport.Credentials{Host: "h", DeviceID: "d"}, edge.InvokerOptions{}, "ModuleID is empty"},
		"no host":           {&transport.Credentials{DeviceID: "d", ModuleID: "m"}, edge.InvokerOptions{}, "Host is empty"},
		"a negative margin": {caller(t), edge.InvokerOptions{Margin: -1}, "Margin is negative"},
		"a wrong policy":    {caller(t), edge.InvokerOptions{RetryPolicy: retrypolicy.MaxAttempts{}}, "RetryPolicy: "},
		"a write time-out": {caller(t), edge.InvokerOptions{Network: netopt.Options{WriteTimeout: 1}},
			"WriteTimeout is set"},
		"a line break": {caller(t), edge.InvokerOptions{Network: netopt.Options{ProductInfo: "a\n"}}, "ProductInfo"},
	} {
		_, err := edge.NewInvoker(c.creds, &c.o)
		require.ErrorIs(t, err, transport.Invalid, name)
		require.ErrorContains(t, err, c.text, name)
		require.Equal(t, transport.OpOpen, transport.Find(err).Op, name)
	}
}

// Calls may run at the same time; at most four connections are kept, for 30 s.
func TestConnectionsOfAnInvoker(t *testing.T) {
	callOf(t, nil, func(t *testing.T, g *gateway, v *edge.Invoker) {
		for _, dialed := range []int{6, 8} { // four of the six were kept
			release := make(chan struct{})
			g.mu.Lock()
			g.answer = func(w http.ResponseWriter, n int) {
				<-release
				ok(w, n)
			}
			g.mu.Unlock()
			before := len(g.seen())
			var calls sync.WaitGroup
			for range 6 {
				calls.Go(func() {
					if _, err := v.Invoke(t.Context(), modB, reboot); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			require.Len(t, g.seen(), before+6)
			close(release)
			calls.Wait()
			require.Equal(t, dialed, g.dialed())
		}
		time.Sleep(31 * time.Second) // idle for too long
		_, err := v.Invoke(t.Context(), modB, reboot)
		require.NoError(t, err)
		require.Equal(t, 9, g.dialed())
		for _, end := range []func(*memconn.Conn){func(c *memconn.Conn) { _ = c.Close() }, (*memconn.Conn).Reset} {
			before := len(g.seen())
			g.mu.Lock()
			conns := g.conns
			g.mu.Unlock()
			end(conns[len(conns)-1]) // the gateway is gone while no call runs
			synctest.Wait()
			began := time.Now()
			_, err = v.Invoke(t.Context(), modB, reboot)
			require.NoError(t, err)
			require.Len(t, g.seen(), before+1)
			require.Zero(t, time.Since(began), "it is no failure of the call")
		}
		require.Equal(t, 11, g.dialed())
	})
}
