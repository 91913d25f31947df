package observe_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/observe"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

var connack = regexp.MustCompile(`(CONNACK \d+) \([^)]*\)`)

var update = flag.Bool("update", false, "write the golden file anew")

var creds = &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1"}

func overMQTT(t *testing.T, hub *testbroker.Hub, id string) *device.Client {
	t.Helper()
	creds, err := device.ParseConnectionString(hub.ConnectionString(id))
	require.NoError(t, err)
	return newClient(t, creds, mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true,
		Dial: hub.Dial(testbroker.PortMQTT)}}), nil)
}

func newClient(t *testing.T, creds *transport.Credentials, tr transport.Transport, o *device.Options) *device.Client {
	t.Helper()
	if o == nil {
		o = &device.Options{}
	}
	o.Rand = func() uint64 { return 0 }
	c, err := device.New(creds, tr, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func ask(h http.Handler, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
}

// answer is the body of /healthz.
type answer struct {
	Healthy bool
	Clients map[string]struct {
		Healthy       bool
		State, Reason string
		Outage        float64 `json:"outage_seconds"`
	}
}

// check requests /healthz and checks that code and body agree.
func check(t *testing.T, h http.Handler, target string) (a answer) {
	t.Helper()
	w := ask(h, "GET", target)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a))
	require.Equal(t, a.Healthy, w.Code == http.StatusOK)
	if !a.Healthy {
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
	}
	return a
}

func TestHealthFollowsAnOutage(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		hub := hubfixture.Open(t, &testbroker.Options{Seed: 1}, "dev-1")
		c := overMQTT(t, hub, "dev-1")
		h := &observe.Health{Grace: time.Minute}
		require.True(t, check(t, h, "/healthz").Healthy, "nobody is ill")
		h.Add("north", c)
		a := check(t, h, "/healthz")
		require.False(t, a.Healthy)
		require.Equal(t, "not opened", a.Clients["north"].Reason)

		require.NoError(t, c.Open(t.Context()))
		require.True(t, check(t, h, "/healthz").Healthy)

		absent := hub.Inject(fault.Fault{Kind: fault.Absent})
		synctest.Wait()
		a = check(t, h, "/healthz")
		require.True(t, a.Healthy, "lost a moment ago")
		require.Equal(t, "retrying", a.Clients["north"].State)
		time.Sleep(time.Minute - time.Nanosecond)
		a = check(t, h, "/healthz")
		require.True(t, a.Healthy)
		require.InDelta(t, 60, a.Clients["north"].Outage, 0.001)
		time.Sleep(time.Nanosecond)
		require.False(t, check(t, h, "/healthz").Healthy)

		absent.Remove()
		time.Sleep(10 * time.Second)
		a = check(t, h, "/healthz")
		require.True(t, a.Healthy)
		require.Zero(t, a.Clients["north"].Outage)

		require.NoError(t, hub.SetEnabled("dev-1", false))
		time.Sleep(30 * time.Second)
		a = check(t, h, "/healthz")
		require.False(t, a.Healthy)
		require.Equal(t, "not retryable", a.Clients["north"].Reason)
		require.Equal(t, "disconnected", a.Clients["north"].State)

		require.NoError(t, c.Close())
		require.Equal(t, "client closed", check(t, h, "/healthz").Clients["north"].Reason)
		h.Remove("north")
		h.Remove("north")
		require.True(t, check(t, h, "/healthz").Healthy)
	})
}

func TestAPausedClientIsHealthy(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		c := newClient(t, creds, &scripted{Verdict: func(*transport.Message) error {
			return scriptedFailure(transport.Quota, transport.ScopeOperation)
		}}, nil)
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: []byte("x")}, nil))
		synctest.Wait()
		h := &observe.Health{Grace: -1}
		h.Add("a", c)
		a := check(t, h, "/healthz")
		require.True(t, a.Healthy)
		require.Equal(t, "paused", a.Clients["a"].Reason)
		require.Contains(t, ask(h, "GET", "/stats").Body.String(), `"scope": "operation"`)
	})
}

// fixed is a client in a given state.
type fixed struct {
	status device.Status
	stats  device.Stats
}

func (f fixed) Status() device.Status { return f.status }
func (f fixed) Stats() device.Stats   { return f.stats }

func TestGrace(t *testing.T) {
	for _, row := range []struct {
		grace, outage time.Duration
		want          bool
	}{
		{0, 5*time.Minute - 1, true},
		{0, 5 * time.Minute, false},
		{-1, 0, false},
		{time.Second, 0, true},
		{time.Second, time.Second, false},
		{1<<63 - 1, 1<<63 - 2, true},
	} {
		h := &observe.Health{Grace: row.grace}
		h.Add("a", fixed{device.Status{State: device.StateDisconnectedRetrying}, device.Stats{Outage: row.outage}})
		require.Equal(t, row.want, check(t, h, "/healthz").Healthy, "%+v", row)
	}
}

func TestOneOfMany(t *testing.T) {
	h := &observe.Health{}
	h.Add("well", fixed{status: device.Status{State: device.StateConnected}})
	h.Add("ill & far", fixed{})
	a := check(t, h, "/healthz")
	require.False(t, a.Healthy)
	require.Len(t, a.Clients, 2)
	require.True(t, a.Clients["well"].Healthy)
	require.True(t, check(t, h, "/healthz?client=well").Healthy)
	require.False(t, check(t, h, "/healthz?client=ill+%26+far").Healthy)
	require.Equal(t, http.StatusNotFound, ask(h, "GET", "/healthz?client=nobody").Code)
	require.Equal(t, http.StatusNotFound, ask(h, "GET", "/stats?client=").Code)
	require.NotContains(t, ask(h, "GET", "/stats?client=well").Body.String(), "ill")
	h.Add("ill & far", fixed{status: device.Status{State: device.StateConnected}})
	require.True(t, check(t, h, "/healthz").Healthy, "replaced")
}

func TestPathsAndMethods(t *testing.T) {
	h := &observe.Health{}
	h.Add("a", fixed{status: device.Status{State: device.StateConnected}})
	for _, row := range []struct {
		method, target string
		code           int
	}{
		{"GET", "/healthz", 200},
		{"HEAD", "/healthz", 200},
		{"HEAD", "/stats", 200},
		{"HEAD", "/healthz?client=b", 404},
		{"POST", "/healthz", 405},
		{"PUT", "/stats", 405},
		{"DELETE", "/stats", 405},
		{"OPTIONS", "/healthz", 405},
		{"GET", "/", 404},
		{"GET", "/healthz/", 404},
		{"POST", "/other", 404},
	} {
		w := ask(h, row.method, row.target)
		require.Equal(t, row.code, w.Code, "%+v", row)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		if row.code == 405 {
			require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
		}
		if row.method == "HEAD" {
			require.Zero(t, w.Body.Len())
			continue
		}
		require.True(t, json.Valid(w.Body.Bytes()))
		require.Equal(t, strconv.Itoa(w.Body.Len()), w.Header().Get("Content-Length"))
	}
	require.Equal(t, http.StatusOK, ask(http.StripPrefix("/device", h), "GET", "/device/healthz").Code)
}

// The whole of /stats for a client in each state. Time is fake, so the file is exact.
func TestStatsAreAsDocumented(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		hub := hubfixture.Open(t, &testbroker.Options{Seed: 1}, "connected", "retrying", "hopeless")
		h := &observe.Health{}

		hub.Inject(fault.Fault{Kind: fault.RefuseConnect, Device: "connected"})
		connected := overMQTT(t, hub, "connected")
		require.NoError(t, connected.Open(t.Context()))
		for range 3 {
			require.NoError(t, connected.Send(t.Context(), &transport.Message{Body: []byte("reading")}))
		}
		h.Add("connected", connected)

		hub.Inject(fault.Fault{Kind: fault.RefuseConnect, Device: "retrying", Times: -1})
		retrying := overMQTT(t, hub, "retrying")
		require.NoError(t, retrying.Enqueue(t.Context(), &transport.Message{Body: []byte("reading")}, nil))
		require.NoError(t, retrying.Start())
		h.Add("retrying", retrying)

		require.NoError(t, hub.SetEnabled("hopeless", false))
		hopeless := overMQTT(t, hub, "hopeless")
		require.Error(t, hopeless.Open(t.Context()))
		h.Add("hopeless", hopeless)

		tr := &scripted{OnDial: func(n int) error {
			if n <= 3 {
				return nil
			}
			e := scriptedFailure(transport.Throttled, transport.ScopeConnection)
			e.RetryAfter = 1500 * time.Second
			return e
		}}
		flapping := newClient(t, creds,
			tr, nil)
		flapping.HandleMessages(func(context.Context, *transport.Message) error { return device.ErrReject })
		require.NoError(t, flapping.Open(t.Context()))
		require.True(t, tr.Deliver("command"))
		synctest.Wait()
		for range 3 {
			time.Sleep(time.Second)
			tr.Lose()
			synctest.Wait()
		}
		h.Add("flapping", flapping)

		ended := newClient(t, creds, &scripted{OnDial: func(int) error {
			return scriptedFailure(transport.Timeout, transport.ScopeConnection)
		}}, &device.Options{OutageLimit: time.Second})
		require.Error(t, ended.Open(t.Context()))
		h.Add("ended", ended)
		closed := newClient(t, creds, &scripted{}, nil)
		require.NoError(t, closed.Open(t.Context()))
		require.NoError(t, closed.Close())
		h.Add("closed", closed)
		h.Add("new", newClient(t, creds, &scripted{}, nil))
		time.Sleep(time.Minute)

		w := ask(h, "GET", "/stats")
		require.Equal(t, http.StatusOK, w.Code)
		const golden = "testdata/stats.json"
		got := connack.ReplaceAllString(w.Body.String(), "$1") // the text is the transport's
		if *update {
			require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, strings.ReplaceAll(string(want), "\r\n", "\n"), got)

		for _, id := range []string{"connected", "retrying", "hopeless"} {
			d, err := hub.Device(id)
			require.NoError(t, err)
			require.NotContains(t, w.Body.String(), d.PrimaryKey)
			require.NotContains(t, w.Body.String(), d.SecondaryKey)
		}
	})
}

// A field added to Stats or Status must be shown here too.
func TestNoFieldIsForgotten(t *testing.T) {
	var f fixed
	n := fill(reflect.ValueOf(&f.stats).Elem(), 1001)
	fill(reflect.ValueOf(&f.status).Elem(), n)
	f.status.State, f.status.Reason, f.status.Suspect = device.StateConnected, device.ReasonPaused, device.SuspectUnstable
	h := &observe.Health{}
	h.Add("a", f)
	body := ask(h, "GET", "/stats").Body.String()
	for _, v := range []reflect.Value{reflect.ValueOf(f.stats), reflect.ValueOf(f.status)} {
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if name == "Missed" || !v.Type().Field(i).IsExported() { // Missed is only meaningful in OnStatus
				continue
			}
			var want string
			switch x := v.Field(i).Interface().(type) {
			case time.Duration:
				want = ": " + strconv.Itoa(int(x.Seconds()))
			case time.Time:
				want = x.Format(time.RFC3339)
			case error:
				want = x.Error()
			case device.State, device.Reason, device.Suspect:
				want = x.(interface{ String() string }).String()
			case int:
				want = ": " + strconv.Itoa(x)
			case uint64:
				want = ": " + strconv.FormatUint(x, 10)
			default:
				t.Fatalf("%s has a type of which this test does not know", name)
			}
			require.Contains(t, body, want, "%s is not shown", name)
		}
	}
}

// fill gives each field a different value, in whole seconds for times.
func fill(v reflect.Value, n int) int {
	for i := range v.NumField() {
		if !v.Type().Field(i).IsExported() {
			continue
		}
		switch f := v.Field(i); f.Interface().(type) {
		case time.Duration:
			f.Set(reflect.ValueOf(time.Duration(n) * time.Second))
		case time.Time:
			f.Set(reflect.ValueOf(time.Unix(int64(n), 0).UTC()))
		default:
			switch f.Kind() {
			case reflect.Interface:
				f.Set(reflect.ValueOf(errors.New("failure " + strconv.Itoa(n))))
			case reflect.Int:
				f.SetInt(int64(n))
			case reflect.Uint64:
				f.SetUint(uint64(n))
			}
		}
		n++
	}
	return n
}

func TestForeignSecretsAreHidden(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		own := *creds
		own.Token = func(context.Context) (transport.Token, error) {
			return transport.Token{}, errors.New("GET https://tokens.example/?sig=geheim: 500")
		}
		c := newClient(t, &own, mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true,
			Dial: hubfixture.Open(t, &testbroker.Options{Seed: 1}).Dial(testbroker.PortMQTT)}}), nil)
		require.NoError(t, c.Start())
		synctest.Wait()
		h := &observe.Health{}
		h.Add("a", c)
		body := ask(h, "GET", "/stats").Body.String()
		require.NotContains(t, body, "geheim")
		require.Equal(t, 2, strings.Count(body, "https://tokens.example/?sig=(hidden)"), body)
	})
}

// Clients are added and removed over real sockets during many requests.
func TestServedWhileClientsComeAndGo(t *testing.T) {
	hub := hubfixture.Open(t, &testbroker.Options{Seed: 1}, "dev-1")
	c := overMQTT(t, hub, "dev-1")
	require.NoError(t, c.Open(t.Context()))
	h := &observe.Health{}
	h.Add("stays", c)
	server := httptest.NewServer(h)
	defer server.Close()

	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			name := "comes and goes " + strconv.Itoa(i)
			for range 50 {
				h.Add(name, c)
				h.Remove(name)
				_ = c.Enqueue(t.Context(), &transport.Message{Body: []byte("x")}, nil)
			}
		})
		wg.Go(func() {
			for n := range 50 {
				method, path := "GET", "/stats"
				if n%2 == 1 {
					method, path = "HEAD", "/healthz?client=stays"
				}
				r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				answer, err := server.Client().Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || answer.StatusCode != http.StatusOK || (len(body) == 0) != (method == "HEAD") ||
					answer.ContentLength <= 0 {
					t.Errorf("%s %s: %s, %d bytes of %d, %v", method, path, answer.Status, len(body), answer.ContentLength, err)
				}
			}
		})
	}
	wg.Wait()
}
