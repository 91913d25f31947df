package httpfront_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// A faultCase is a fault and the result of three requests. Each has a message, and a time limit of
// ten seconds.
type faultCase struct {
	fault  fault.Fault
	want   [3]int // status; 0 = no answer
	stored int
	fired  int
	code   int           // the service's code in the first refusal
	took   time.Duration // time of the first request
	conns  [2]uint64     // connections used, over HTTP/1.1 and HTTP/2; zero = any number
}

const fine = 204

func httpFaultCases() map[string]faultCase {
	type F = fault.Fault
	return map[string]faultCase{
		"RefuseConnect": {
			fault: F{Kind: fault.RefuseConnect, Times: 2},
			want:  [3]int{503, 503, fine}, stored: 1, fired: 2, code: 503001, conns: [2]uint64{1, 1},
		},
		"RefuseConnect 401": {
			fault: F{Kind: fault.RefuseConnect, Status: 401},
			want:  [3]int{401, fine, fine}, stored: 2, fired: 1, code: 401003,
		},
		"SlowConnack": {
			fault: F{Kind: fault.SlowConnack, Delay: 3 * time.Second, Times: 3},
			want:  [3]int{fine, fine, fine}, stored: 3, fired: 1, took: 3 * time.Second,
		},
		"SwallowConnack": {
			fault: F{Kind: fault.SwallowConnack},
			want:  [3]int{0, fine, fine}, stored: 2, fired: 1, took: 10 * time.Second,
		},
		"DropConnect": {
			fault: F{Kind: fault.DropConnect},
			want:  [3]int{0, fine, fine}, stored: 2, fired: 1, conns: [2]uint64{2, 2},
		},
		"DropDuringPublish": {
			fault: F{Kind: fault.DropDuringPublish, After: 1},
			want:  [3]int{fine, 0, fine}, stored: 2, fired: 1, conns: [2]uint64{2, 2},
		},
		"DropBeforePublish": {
			fault: F{Kind: fault.DropBeforePublish},
			want:  [3]int{0, fine, fine}, stored: 2, fired: 1, conns: [2]uint64{2, 2},
		},
		"DropAfterPublish": {
			fault: F{Kind: fault.DropAfterPublish},
			want:  [3]int{0, fine, fine}, stored: 3, fired: 1, conns: [2]uint64{2, 2},
		},
		"DropAfterPuback": {
			fault: F{Kind: fault.DropAfterPuback},
			want:  [3]int{fine, fine, fine}, stored: 3, fired: 1, conns: [2]uint64{2, 2},
		},
		"SlowPuback": {
			fault: F{Kind: fault.SlowPuback, Delay: 4 * time.Second},
			want:  [3]int{fine, fine, fine}, stored: 3, fired: 1, took: 4 * time.Second,
		},
		"SwallowPuback": {
			fault: F{Kind: fault.SwallowPuback},
			want:  [3]int{0, fine, fine}, stored: 3, fired: 1, took: 10 * time.Second, conns: [2]uint64{2, 1},
		},
		"Forget": {
			fault: F{Kind: fault.Forget},
			want:  [3]int{fine, fine, fine}, stored: 2, fired: 1,
		},
		"GarbageOnPublish": {
			fault: F{Kind: fault.GarbageOnPublish},
			want:  [3]int{0, fine, fine}, stored: 3, fired: 1,
		},
		"HalfOpen": {
			fault: F{Kind: fault.HalfOpen, For: 5 * time.Second},
			want:  [3]int{0, fine, fine}, stored: 2, fired: 1, took: 10 * time.Second,
		},
		"HalfOpen of one": {
			fault: F{Kind: fault.HalfOpen, Device: "dev-1", For: 5 * time.Second},
			want:  [3]int{0, fine, fine}, stored: 2, fired: 1,
		},
		"HalfOpen later": {
			fault: F{Kind: fault.HalfOpen, After: 1, For: 5 * time.Second},
			want:  [3]int{fine, 0, fine}, stored: 2, fired: 1,
		},
		"Throttle": {
			fault: F{Kind: fault.Throttle, Rate: 0.5},
			want:  [3]int{fine, 429, 429}, stored: 1, fired: 2, code: 429001, conns: [2]uint64{1, 1},
		},
		"Absent": {
			fault: F{Kind: fault.Absent, Device: "dev-1", For: time.Second},
			want:  [3]int{0, 0, 0}, stored: 0, fired: 3, conns: [2]uint64{3, 3},
		},
		"Absent to all": {
			fault: F{Kind: fault.Absent},
			want:  [3]int{0, 0, 0}, stored: 0, fired: 3,
		},
		"Quota": {
			fault: F{Kind: fault.Quota, Limit: 1},
			want:  [3]int{fine, 403, 403}, stored: 1, fired: 2, code: 403002,
		},

		"MuteHandshake": {
			fault: F{Kind: fault.MuteHandshake},
			want:  [3]int{0, fine, fine}, stored: 2, fired: 1, took: 10 * time.Second,
		},
		"NotTLS": {
			fault: F{Kind: fault.NotTLS},
			want:  [3]int{0, fine, fine}, stored: 2, fired: 1,
		},
	}
}

func moreHTTPFaultCases() map[string]faultCase {
	type F = fault.Fault
	return map[string]faultCase{
		"CutHandshake": {
			fault: F{Kind: fault.CutHandshake},
			want:  [3]int{0, fine, fine}, stored: 2, fired: 1,
		},
		"OldTLS": {
			fault: F{Kind: fault.OldTLS},
			want:  [3]int{0, fine, fine}, stored: 2, fired: 1,
		},
		"ExpiredCertificate": {
			fault: F{Kind: fault.ExpiredCertificate},
			want:  [3]int{0, fine, fine}, stored: 2, fired: 1,
		},

		"AnswerStatus": {
			fault: F{Kind: fault.AnswerStatus},
			want:  [3]int{503, fine, fine}, stored: 2, fired: 1, code: 503001, conns: [2]uint64{1, 1},
		},
		"AnswerStatus, list": {
			fault: F{Kind: fault.AnswerStatus, Statuses: []int{500, 0, 429}},
			want:  [3]int{500, fine, 429}, stored: 1, fired: 2, code: 500001,
		},
		"AnswerStatus, code": {
			fault: F{Kind: fault.AnswerStatus, Statuses: []int{403, 200}, ErrorCode: 403006, Times: -1},
			want:  [3]int{403, 200, 403}, stored: 0, fired: 3, code: 403006,
		},
		"AnswerStatus elsewhere": {
			fault: F{Kind: fault.AnswerStatus, Route: fault.RouteReceive},
			want:  [3]int{fine, fine, fine}, stored: 3,
		},
		"AnswerStatusAfter": {
			fault: F{Kind: fault.AnswerStatusAfter, Statuses: []int{504}, After: 1, Route: fault.RouteTelemetry},
			want:  [3]int{fine, 504, fine}, stored: 3, fired: 1, code: 504000,
		},
		"ResetBeforeRequest": {
			fault: F{Kind: fault.ResetBeforeRequest},
			want:  [3]int{0, fine, fine}, stored: 2, fired: 1, conns: [2]uint64{2, 2},
		},
		"ResetAfterRequest": {
			fault: F{Kind: fault.ResetAfterRequest},
			want:  [3]int{0, fine, fine}, stored: 3, fired: 1, conns: [2]uint64{2, 2},
		},
		"SwallowAnswer": {
			fault: F{Kind: fault.SwallowAnswer, Times: 2},
			want:  [3]int{0, 0, fine}, stored: 3, fired: 2, took: 10 * time.Second,
		},
		"DropDuringAnswer": {
			fault: F{Kind: fault.DropDuringAnswer},
			want:  [3]int{0, fine, fine}, stored: 3, fired: 1, conns: [2]uint64{2, 1},
		},
		"SlowAnswer": {
			fault: F{Kind: fault.SlowAnswer, Delay: 8 * time.Second},
			want:  [3]int{fine, fine, fine}, stored: 3, fired: 1, conns: [2]uint64{2, 1},
		},
		"SlowAnswer, too slow": {
			fault: F{Kind: fault.SlowAnswer, Delay: 200 * time.Second},
			want:  [3]int{0, fine, fine}, stored: 3, fired: 1, took: 10 * time.Second,
		},
		"GarbageAnswer": {
			fault: F{Kind: fault.GarbageAnswer},
			want:  [3]int{0, fine, fine}, stored: 3, fired: 1, conns: [2]uint64{2, 2},
		},
		"WrongDate": {
			fault: F{Kind: fault.WrongDate, Skew: time.Hour},
			want:  [3]int{fine, fine, fine}, stored: 3, fired: 1,
		},
		"NoContentLength": {
			fault: F{Kind: fault.NoContentLength},
			want:  [3]int{fine, fine, fine}, stored: 3,
		},

		// The faults of uploads do not happen to messages.
		"CutBlobBody": {
			fault: F{Kind: fault.CutBlobBody},
			want:  [3]int{fine, fine, fine}, stored: 3,
		},
		"SlowBlob": {
			fault: F{Kind: fault.SlowBlob},
			want:  [3]int{fine, fine, fine}, stored: 3,
		},
		"DamageBlob": {
			fault: F{Kind: fault.DamageBlob},
			want:  [3]int{fine, fine, fine}, stored: 3,
		},
		"ExpireUpload": {
			fault: F{Kind: fault.ExpireUpload},
			want:  [3]int{fine, fine, fine}, stored: 3,
		},
		"of blobs": {
			fault: F{Kind: fault.AnswerStatus, Blob: fault.PutBlock},
			want:  [3]int{fine, fine, fine}, stored: 3,
		},
	}
}

func TestFaultsOverHTTP(t *testing.T) {
	covered := make(map[fault.Kind]bool)
	cases := httpFaultCases()
	maps.Copy(cases, moreHTTPFaultCases())
	for name, c := range cases {
		require.NotZero(t, c.fault.Kind.Protocols()&hubdata.HTTP, name)
		covered[c.fault.Kind] = true
		for major, over := range []string{"HTTP/1.1", "HTTP/2"} {
			t.Run(name+" over "+over, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { playHTTP(t, c, major) })
			})
		}
	}
	for _, k := range fault.Kinds() {
		require.Equal(t, k.Protocols()&hubdata.HTTP != 0, covered[k], k)
	}
}

func playHTTP(t *testing.T, c faultCase, major int) {
	h, d := hubtest.NewHub(t, nil)
	p := hubtest.NewPoster(t, h.Dial(testbroker.PortHTTPS), h.ClientTLS(), hubtest.Token(d))
	p.Client.Transport.(*http.Transport).ForceAttemptHTTP2 = major == 1
	p.Client.Timeout = 10 * time.Second
	in := h.Inject(c.fault)
	last := uint64(0)
	for i, want := range c.want {
		start := time.Now()
		r, err := p.Try("POST", "/devices/dev-1/messages/events"+hubtest.Version, fmt.Sprint(i))
		got := 0
		if err == nil {
			got = r.StatusCode
		}
		require.Equal(t, want, got, "request %d: %v", i, err)
		if i == 0 && c.took > 0 {
			require.Equal(t, c.took, time.Since(start).Round(time.Millisecond))
		}
		if got >= 400 && c.code > 0 {
			r.Refused(t, c.code)
			c.code = 0
		}
		if log := h.Messages(); len(log) > 0 {
			last = log[len(log)-1].Connection
		}
		synctest.Wait()
	}
	require.Zero(t, c.code)
	require.Equal(t, c.stored, h.Len())
	require.Equal(t, c.fired, in.Fired())
	if want := c.conns[major]; want > 0 && c.stored > 0 {
		require.Equal(t, want, last)
	}
}

func TestRetryAfter(t *testing.T) {
	type (
		F = fault.Fault
		H = testbroker.HTTPOptions
	)
	for name, c := range map[string]struct {
		options testbroker.HTTPOptions
		fault   fault.Fault
		want    []string
	}{
		"none": {H{}, F{Kind: fault.AnswerStatus}, []string{"", ""}},
		"seconds": {H{}, F{Kind: fault.AnswerStatus, RetryAfter: 1500 * time.Millisecond, Times: 2},
			[]string{"2", "2"}},
		"date": {H{}, F{Kind: fault.AnswerStatus, RetryAfter: time.Minute, RetryAfterDate: true},
			[]string{"Sat, 01 Jan 2000 00:01:00 GMT",
				""}},
		"option": {H{RetryAfterDate: true}, F{Kind: fault.RefuseConnect, RetryAfter: time.Second},
			[]string{"Sat, 01 Jan 2000 00:00:01 GMT",
				""}},
		"throttle": {H{}, F{Kind: fault.Throttle, Rate: 0.4}, []string{"", "3"}},
		"dates": {H{RetryAfterDate: true}, F{Kind: fault.Throttle, Rate: 0.4}, []string{"",
			"Sat, 01 Jan 2000 00:00:03 GMT"}},
	} {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			h, d := hubtest.NewHub(t, &testbroker.Options{HTTP: c.options})
			p := hubtest.OverHTTP(t, h, d)
			h.Inject(c.fault)
			for _, want := range c.want {
				r := p.Post("/devices/dev-1/messages/events"+hubtest.Version, "x")
				require.Equal(t, want, r.Header.Get("Retry-After"))
			}
			time.Sleep(3 * time.Second)
			p.Send("x")
		})
	}
}

// Faults of answers with a body.
func TestFaultsOfAnAnswerWithABody(t *testing.T) {
	for major, over := range []string{"HTTP/1.1", "HTTP/2"} {
		hubtest.RunInBubble(t, over, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			p := hubtest.NewPoster(t, h.Dial(testbroker.PortHTTPS), h.ClientTLS(), hubtest.Token(d))
			p.Client.Transport.(*http.Transport).ForceAttemptHTTP2 = major == 1
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte(strings.Repeat("x", 1000))}))
			get := func() (hubtest.Reply, error) {
				time.Sleep(time.Minute) // the lock ends
				return p.Try("GET", hubtest.Inbound+hubtest.Version, "")
			}
			h.Inject(fault.Fault{Kind: fault.DropDuringAnswer})
			_, err := get()
			require.Error(t, err)
			require.Equal(t, 1, h.C2DLog("dev-1")[0].Deliveries)

			h.Inject(fault.Fault{Kind: fault.NoContentLength})
			r, err := get()
			require.NoError(t, err)
			require.Len(t, r.Text, 1000)
			require.EqualValues(t, -1, r.ContentLength)

			h.Inject(fault.Fault{Kind: fault.WrongDate, Skew: -time.Hour})
			r, err = get()
			require.NoError(t, err)
			require.EqualValues(t, 1000, r.ContentLength)
			date, err := http.ParseTime(r.Header.Get("Date"))
			require.NoError(t, err)
			require.Equal(t, time.Now().Add(-time.Hour).UTC(), date)

			h.Inject(fault.Fault{Kind: fault.SlowAnswer, Delay: 8 * time.Second})
			start := time.Now()
			r, err = get()
			require.NoError(t, err)
			require.Len(t, r.Text, 1000)
			require.Equal(t, 68*time.Second, time.Since(start))
		})
	}
}

func TestFaultMessagesOverHTTP(t *testing.T) {
	ask := func(p *hubtest.Poster, kind string, more ...string) (hubtest.Reply, error) {
		return p.Try("POST", "/devices/dev-1/messages/events"+hubtest.Version, "x",
			append([]string{"iothub-app-AzIoTHub_FaultOperationType", kind, "iothub-app-AzIoTHub_FaultOperationCloseReason",
				"boom"}, more...)...)
	}
	const delay, duration = "iothub-app-AzIoTHub_FaultOperationDelayInSecs",
		"iothub-app-AzIoTHub_FaultOperationDurationInSecs"
	for kind, code := range map[string]int{"InvokeThrottling": 429001, "InvokeMaxMessageQuota": 403002,
		"InvokeAuthError": 401003} {
		hubtest.RunInBubble(t, kind, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			p := hubtest.OverHTTP(t, h, d)
			r, err := ask(p, kind, delay, "2", duration, "5")
			require.NoError(t, err)
			require.Equal(t, 204, r.StatusCode)
			p.Send("before")
			time.Sleep(2001 * time.Millisecond)
			for range 2 {
				p.Post("/devices/dev-1/messages/events"+hubtest.Version, "x").Refused(t, code)
			}
			time.Sleep(5 * time.Second)
			p.Send("behind")
			r, err = ask(p, kind)
			require.NoError(t, err)
			require.Equal(t, 204, r.StatusCode)
			p.Post("/devices/dev-1/messages/events"+hubtest.Version, "x").Refused(t, code)
			p.Send("one only")
			require.Equal(t, 3, h.Len())
			asked := h.FaultMessages()
			require.Len(t, asked, 2)
			require.Equal(t, 2, asked[0].Refused)
			require.Equal(t, "boom", asked[0].Reason)
			require.True(t, asked[0].Happened)
		})
	}
	hubtest.RunInBubble(t, "KillTcp", nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.OverHTTP(t, h, d)
		r, err := ask(p, "killtcp", delay, "1", duration, "5")
		require.NoError(t, err)
		require.Equal(t, 204, r.StatusCode)
		require.Equal(t, 1, h.Connections("dev-1"))
		time.Sleep(2 * time.Second)
		require.Equal(t, 0, h.Connections("dev-1"))
		_, err = p.Try("POST", "/devices/dev-1/messages/events"+hubtest.Version, "x")
		require.Error(t, err)
		time.Sleep(5 * time.Second)
		p.Send("x")
		require.Equal(t, 1, h.FaultMessages()[0].Refused)
	})
	hubtest.RunInBubble(t, "of another protocol", nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.OverHTTP(t, h, d)
		r, err := ask(p, "KillAmqpSession")
		require.NoError(t, err)
		require.Equal(t, 204, r.StatusCode)
		p.Send("x")
		require.False(t, h.FaultMessages()[0].Happened)
		require.Equal(t, 1, h.Len())
	})
	hubtest.RunBubble(t, "unacknowledged", func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{FaultMessages: fault.ObeyMessagesUnacked})
		p := hubtest.OverHTTP(t, h, d)
		p.Client.Timeout = time.Hour
		start := time.Now()
		_, err := ask(p, "KillTcp", delay, "600")
		require.Error(t, err)
		require.Equal(t, 10*time.Minute, time.Since(start), "no limit of the hub comes before")
	})
}

// Drop, SendRaw and HalfOpen select connections over HTTP by the devices that have used them.
func TestConnectionsOverHTTPByDevice(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		other := hubtest.AddDevice(t, h, "dev-2")
		p := hubtest.OverHTTP(t, h, d)
		p.Send("x")
		require.Zero(t, h.Drop("dev-2"))
		p.Token = hubtest.Token(other)
		require.Equal(t, 204, p.Post("/devices/dev-2/messages/events"+hubtest.Version, "x").StatusCode)
		require.Equal(t, 1, h.Connections("dev-1"))
		require.Equal(t, 1, h.Connections("dev-2"))
		require.Equal(t, 1, h.Connections(""))
		require.NoError(t, h.RemoveDevice("dev-2"))
		require.Zero(t, h.Connections("dev-2"))
		require.Equal(t, 1, h.Connections("dev-1"))
		p.Post("/devices/dev-2/messages/events"+hubtest.Version, "x").Refused(t, 404001)
		require.Equal(t, 1, h.Drop("dev-1"))
		synctest.Wait()
		require.Zero(t, h.Connections(""))
	})
}

// TestWhatWasAnsweredIsInTheLog sends from three devices, two of them over HTTP/2, while faults of
// every kind overlap: what was answered is in the log, in order.
func TestWhatWasAnsweredIsInTheLog(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stressHTTP(t, seed) })
		})
	}
}

func stressHTTP(t *testing.T, seed uint64) {
	const devices, messages = 3, 40
	rng := rand.New(rand.NewPCG(seed, 1))
	h, _ := hubtest.NewHub(t, &testbroker.Options{Seed: seed + 1})
	var kinds []fault.Kind
	for k := range fault.Kind(255) {
		if k.Protocols()&hubdata.HTTP != 0 && k != fault.Forget {
			kinds = append(kinds, k)
		}
	}
	var plan []fault.Fault
	var pauses []time.Duration
	for range 40 {
		f := fault.Fault{
			Kind: kinds[rng.IntN(len(kinds))], After: rng.IntN(5), Times: 1 + rng.IntN(2), Statuses: []int{500 + rng.IntN(5),
				429, 0},
			Delay: time.Duration(rng.Int64N(int64(time.Second))), For: time.Duration(1 + rng.Int64N(int64(10*time.Second))),
			Rate: 10,
		}
		if f.Kind.Lasts() {
			f.Times = 0
		}
		plan = append(plan, f)
		pauses = append(pauses, time.Duration(rng.Int64N(int64(3*time.Second))))
	}
	var wg sync.WaitGroup
	for i := range devices {
		d := hubtest.AddDevice(t, h, fmt.Sprint("d", i))
		p := hubtest.NewPoster(t, h.Dial(testbroker.PortHTTPS), h.ClientTLS(), hubtest.Token(d))
		p.Client.Transport.(*http.Transport).ForceAttemptHTTP2 = i > 0
		p.Client.Timeout = 5 * time.Second
		wg.Go(func() {
			for n := 0; n < messages; time.Sleep(time.Second) {
				r, err := p.Try("POST", "/devices/"+d.ID+"/messages/events"+hubtest.Version, fmt.Sprint("body ", n),
					"iothub-messageid",
					fmt.Sprint(n))
				if err == nil && r.StatusCode == 204 {
					n++
				}
			}
		})
	}
	fired := 0
	var faults []*testbroker.Injected
	for i, f := range plan {
		time.Sleep(pauses[i])
		faults = append(faults, h.Inject(f))
	}
	wg.Wait()
	for _, in := range faults {
		fired += in.Fired()
	}
	require.NotZero(t, fired)
	next := make(map[string]int)
	for _, m := range h.Messages() {
		var n int
		_, err := fmt.Sscan(m.MessageID, &n)
		require.NoError(t, err)
		if n > next[m.DeviceID] {
			t.Errorf("%s: message %d is missing", m.DeviceID, next[m.DeviceID])
		}
		next[m.DeviceID] = max(next[m.DeviceID], n+1)
	}
	for i := range devices {
		require.Equal(t, messages, next[fmt.Sprint("d", i)])
	}
	require.Empty(t, h.Conflicts())
}

// On real sockets a reset overtakes data, and an orderly end does not.
func TestFaultsOverRealHTTPS(t *testing.T) {
	for _, c := range []struct {
		fault fault.Fault
		want  int // the first status; 0 = no answer
		err   string
	}{
		{fault.Fault{Kind: fault.ResetBeforeRequest}, 0, "reset"},
		{fault.Fault{Kind: fault.ResetAfterRequest}, 0, "reset"},
		{fault.Fault{Kind: fault.DropDuringAnswer}, 0, "unexpected EOF"},
		{fault.Fault{Kind: fault.GarbageAnswer}, 0, "malformed HTTP"},
		{fault.Fault{Kind: fault.GarbageOnPublish}, 0, "malformed HTTP"},
		{fault.Fault{Kind: fault.NotTLS}, 0, "HTTP response to HTTPS client"},
		{fault.Fault{Kind: fault.ExpiredCertificate}, 0, "expired"},
		{fault.Fault{Kind: fault.DropAfterPuback}, fine, ""},
		{fault.Fault{Kind: fault.SlowAnswer, Delay: 80 * time.Millisecond}, fine, ""},
		{fault.Fault{Kind: fault.AnswerStatus}, 503, ""},
	} {
		t.Run(c.fault.Kind.String(), func(t *testing.T) {
			h, d := hubtest.NewHub(t, nil)
			p, _ := hubtest.WebWays(t)["TLS, HTTP/1.1"](t, h, hubtest.Token(d))
			in := h.Inject(c.fault)
			r, err := p.Try("POST", "/devices/dev-1/messages/events"+hubtest.Version, "x")
			if c.want == 0 {
				require.ErrorContains(t, err, c.err)
			} else {
				require.NoError(t, err)
				require.Equal(t, c.want, r.StatusCode)
			}
			require.NoError(t, in.WaitFired(t.Context(), 1))
			// The client does not repeat a POST on an ended connection, so it starts with a new one.
			p.Client.CloseIdleConnections()
			p.Send("x")
		})
	}
}

// A device's faults do not affect a back end's requests about it, unless the fault names them.
func TestFaultsSpareBackEnds(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		p := hubtest.BackEnd(t, h, hubdata.RightAll)
		ask := func() int { return p.Do("GET", "/devices/dev-1"+hubtest.Version, "").StatusCode }
		for _, k := range fault.Kinds() {
			switch k {
			case fault.HalfOpen, fault.Absent: // for all devices
				h.Inject(fault.Fault{Kind: k, Device: "dev-1"})
			default:
				h.Inject(fault.Fault{Kind: k, Rate: 0.1})
			}
		}
		require.Equal(t, 200, ask())
		require.Equal(t, 200, ask())
		h.Inject(fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteTwin})
		require.Equal(t, 200, ask())
		h.Inject(fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteRegistry})
		require.Equal(t, 503, ask())
		require.Equal(t, 200, ask())
	})
}
