package httpretry_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/httpretry"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
)

// service answers requests from a list, whose last item repeats: a status, 0 for a lost connection.
type service struct {
	statuses []int
	header   http.Header // of all answers

	at       []time.Duration // when the attempts began
	sent     []string        // their bodies
	attempts []string        // their headers Attempt
	open     int             // bodies of answers that are not closed
	unread   int             // bodies that were closed before their end
	began    time.Time
}

func (s *service) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.began.IsZero() {
		s.began = time.Now()
	}
	s.at = append(s.at, time.Since(s.began))
	s.attempts = append(s.attempts, req.Header.Get("Attempt"))
	sent := ""
	if req.Body != nil {
		all, _ := io.ReadAll(req.Body)
		req.Body.Close()
		sent = string(all)
	}
	s.sent = append(s.sent, sent)
	status := s.statuses[min(len(s.at), len(s.statuses))-1]
	if status == 0 {
		return nil, policytest.Lost
	}
	s.open++
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: s.header,
		Body: &answerBody{Reader: strings.NewReader("answer"), of: s}}, nil
}

type answerBody struct {
	*strings.Reader
	of *service
}

func (b *answerBody) Close() error {
	b.of.open--
	if b.Len() > 0 {
		b.of.unread++
	}
	return nil
}

// do makes a request through a Transport over s, in fake time, and checks that only the body of the
// returned answer was left open.
func (s *service) do(t *testing.T, tr httpretry.Transport, req *http.Request) (status int, err error) {
	t.Helper()
	tr.Base = s
	synctest.Test(t, func(t *testing.T) {
		s.began = time.Now()
		var resp *http.Response
		if resp, err = tr.RoundTrip(req); err == nil {
			status = resp.StatusCode
			if body, readErr := io.ReadAll(resp.Body); readErr != nil || string(body) != "answer" {
				t.Errorf("the body of the answer: %q, %v", body, readErr)
			}
			resp.Body.Close()
		}
	})
	if s.open != 0 || s.unread != 0 {
		t.Errorf("%d bodies of answers left open, %d not read", s.open, s.unread)
	}
	return status, err
}

func request(method, body string) *http.Request {
	req, err := http.NewRequest(method, "http://service.test/path", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	return req
}

func thrice() retrypolicy.Policy { return retrypolicy.MaxAttempts{Total: 3, Policy: second} }

func TestTransportRepeatsRequestsAsThePolicySays(t *testing.T) {
	azcore := httpretry.Transport{Policy: compat.Azcore{},
		Classify: httpretry.ClassifyStatuses(compat.AzcoreStatuses()...)}
	truncated := httpretry.Transport{Policy: compat.Truncated(), Classify: compat.ClassifyTruncated}
	for _, c := range []struct {
		name      string
		transport httpretry.Transport
		statuses  []int
		after     string // header Retry-After
		attempts  int
		status    int // 0: an error
	}{
		{"nothing to repeat", httpretry.Transport{Policy: thrice()}, []int{200}, "", 1, 200},
		{"until it succeeds", httpretry.Transport{Policy: thrice()}, []int{503, 0, 200}, "", 3, 200},
		{"the last answer", httpretry.Transport{Policy: thrice()}, []int{503, 502, 500}, "", 3, 500},
		{"the last failure", httpretry.Transport{Policy: thrice()}, []int{503, 0}, "", 3, 0},
		{"an answer that is final", httpretry.Transport{Policy: thrice()}, []int{503, 404}, "", 2, 404},
		{"azcore: 408, 500, 200", azcore, []int{408, 500, 200}, "", 3, 200},
		{"azcore: always 500", azcore, []int{500}, "", 4, 500},
		{"azcore: without retries", httpretry.Transport{Policy: compat.Azcore{MaxRetries: -1}}, []int{408}, "",
			1, 408},
		{"azcore: 408, then final", azcore, []int{408, 403}, "", 2, 403},
		{"azcore: 429 for longer than its limit", azcore, []int{429}, "300", 1, 429},
		{"truncated", truncated, []int{408, 503, 500, 429, 503}, "", 5, 503},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := service{statuses: c.statuses, header: http.Header{"Retry-After": {c.after}}}
			status, err := s.do(t, c.transport, request("GET", ""))
			if status != c.status || len(s.at) != c.attempts || (err == nil) != (status != 0) {
				t.Errorf("%d after %d attempts, %v; want %d after %d", status, len(s.at), err, c.status, c.attempts)
			}
			if err != nil && (!errors.Is(err, policytest.Lost) || !errors.Is(err, retrypolicy.ReasonOutOfAttempts)) {
				t.Errorf("the error hides its cause or its reason: %v", err)
			}
		})
	}
}

func TestTransportWaitsAsTheServiceAsks(t *testing.T) {
	for _, c := range []struct {
		header http.Header
		want   time.Duration
	}{
		{nil, s},
		{http.Header{"Retry-After": {"7"}}, 7 * s},
		{http.Header{"Retry-After": {"7"}, "Ratelimit": {`"a";r=0;t=9`}}, 7 * s}, // Retry-After takes precedence
		{http.Header{"Ratelimit": {`"a";r=0;t=9`}}, 9 * s},
		{http.Header{"Ratelimit": {`"a";r=5;t=9`}}, s},
		{http.Header{"Retry-After": {"999"}}, time.Minute}, // as the policy allows
	} {
		policy := retrypolicy.RetryAfter{Max: time.Minute, Policy: thrice()}
		busy := service{statuses: []int{503, 200}, header: c.header}
		if _, err := busy.do(t, httpretry.Transport{Policy: policy}, request("GET",
			"")); err != nil || len(busy.at) != 2 ||
			busy.at[1] != c.want {
			t.Errorf("%v: attempts at %v, %v; want the second at %v", c.header, busy.at, err, c.want)
		}
	}
}

// A body is sent again from its beginning, and a request whose body cannot be sent again is not.
func TestTransportSendsBodiesAgain(t *testing.T) {
	plain, none := request("PUT", "body"), request("GET", "")
	once := request("PUT", "body")
	once.GetBody = nil
	broken := request("PUT", "body")
	broken.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("the file is gone") }
	for _, c := range []struct {
		req  *http.Request
		want []string
		text string
	}{
		{plain, []string{"body", "body", "body"}, ""},
		{none, []string{"", "", ""}, ""},
		{once, []string{"body"}, ""},
		{broken, []string{"body"}, "the file is gone"},
	} {
		down := service{statuses: []int{503}}
		_, err := down.do(t, httpretry.Transport{Policy: thrice()}, c.req)
		if !slices.Equal(down.sent, c.want) || (err != nil) != (c.text != "") || err != nil &&
			!strings.Contains(err.Error(), c.text) {
			t.Errorf("sent %q, %v; want %q", down.sent, err, c.want)
		}
	}
}

// A request that may have taken effect is repeated only if that does no harm.
func TestTransportRepeatsOnlyIdempotentRequests(t *testing.T) {
	withKey := request("POST", "x")
	withKey.Header.Set("Idempotency-Key", "1")
	for _, c := range []struct {
		req      *http.Request
		any      bool
		status   int
		attempts int
	}{
		{request("GET", ""), false, 503, 3},
		{request("", ""), false, 503, 3},
		{request("DELETE", ""), false, 503, 3},
		{request("PUT", "x"), false, 0, 3},
		{request("POST", "x"), false, 503, 1},
		{request("POST", "x"), false, 0, 1},
		{request("PATCH", "x"), false, 408, 1},
		{request("POST", "x"), false, 429, 3}, // it did not act
		{request("POST", "x"), true, 503, 3},
		{withKey, false, 503, 3},
	} {
		down := service{statuses: []int{c.status}}
		down.do(t, httpretry.Transport{Policy: thrice(), AnyMethod: c.any}, c.req)
		if len(down.at) != c.attempts {
			t.Errorf("%q with %d, any method %v: %d attempts, want %d", c.req.Method, c.status, c.any,
				len(down.at), c.attempts)
		}
	}
}

func TestTransportNumbersAttemptsInAHeader(t *testing.T) {
	down, req := service{statuses: []int{503}}, request("GET", "")
	var retries []int
	down.do(t, httpretry.Transport{Policy: thrice(), AttemptHeader: "Attempt",
		OnRetry: func(retry int, delay time.Duration, err error) {
			var answer *httpretry.ResponseError
			if errors.As(err, &answer) && answer.Response.StatusCode == 503 && delay == time.Second {
				retries = append(retries, retry)
			}
		}}, req)
	if !slices.Equal(down.attempts, []string{"1", "2", "3"}) || !slices.Equal(retries, []int{1, 2}) {
		t.Errorf("headers %q, retries %v", down.attempts, retries)
	}
	if len(req.Header) != 0 {
		t.Errorf("the request was changed: %v", req.Header)
	}
	req.Header = nil
	down.do(t, httpretry.Transport{Policy: retrypolicy.NoRetry{}, AttemptHeader: "Attempt"}, req)
	if got := down.attempts[3]; got != "1" {
		t.Errorf("header %q of a request without any", got)
	}
}

func TestTransportEndsWithTheContextOfTheRequest(t *testing.T) {
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	down := service{statuses: []int{503}}
	_, err := down.do(t, httpretry.Transport{Policy: second, OnRetry: func(int, time.Duration,
		error) {
		cancel(gone)
	}},
		request("GET", "").WithContext(ctx))
	if len(down.at) != 1 || !errors.Is(err, context.Canceled) || !errors.Is(err, gone) ||
		!errors.Is(err, retrypolicy.ReasonCancelled) {
		t.Errorf("%d attempts, %v", len(down.at), err)
	}
}

// closeNoter notes whether it was closed.
type closeNoter struct {
	io.Reader
	closed bool
}

func (c *closeNoter) Close() error { c.closed = true; return nil }

func TestTransportClosesTheBodyOfARefusedRequest(t *testing.T) {
	breaker := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{Failures: 1}))
	for name, tr := range map[string]*httpretry.Transport{
		"a bad policy":    {},
		"an open breaker": {Policy: breaker.Wrap(retrypolicy.NoRetry{}), Base: &service{statuses: []int{0}}},
	} {
		if tr.Policy != nil {
			tr.RoundTrip(request("GET", "")) // opens the breaker
		}
		body := &closeNoter{Reader: strings.NewReader("x")}
		req := request("PUT", "")
		req.Body = body
		if _, err := tr.RoundTrip(req); err == nil || !body.closed {
			t.Errorf("%s: %v, body closed %v", name, err, body.closed)
		}
	}
}

// The library's own tests: retries by status, and what its functions get.
func TestTransportIsFetchRetry(t *testing.T) {
	fetch := func(f compat.FetchRetry, statuses ...int) (*service, int) {
		down := service{statuses: statuses}
		status, _ := down.do(t, httpretry.Transport{Policy: f, Classify: f.Classify, AnyMethod: true},
			request("POST", "x"))
		return &down, status
	}
	if down, status := fetch(compat.FetchRetry{Retries: 3, Delay: s, On: []int{503}}, 503, 500); len(down.at) != 2 ||
		status != 500 {
		t.Errorf("by status: %d calls, %d; want 2, 500", len(down.at), status)
	}
	var seen []int
	down, status := fetch(compat.FetchRetry{
		DelayFunc: func(attempt int, _ error) time.Duration { return s << attempt },
		OnFunc: func(attempt int, err error) bool {
			answer := err.(*httpretry.ResponseError) //nolint:errorlint // as the Transport passes it
			seen = append(seen, attempt, answer.Response.StatusCode)
			return answer.Response.StatusCode != 200
		},
	}, 503, 404, 302, 200)
	if !slices.Equal(seen, []int{0, 503, 1, 404, 2, 302, 3, 200}) || status != 200 ||
		!slices.Equal(down.at, []time.Duration{0, s, 3 * s, 7 * s}) {
		t.Errorf("by function: saw %v, %d at %v", seen, status, down.at)
	}
}

func TestTransportDoesNotRepeatARefusedCertificate(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	retries := 0
	client := http.Client{Transport: &httpretry.Transport{Base: &http.Transport{}, Policy: second,
		OnRetry: func(int, time.Duration, error) { retries++ }}}
	_, err := client.Get(server.URL)
	if !errors.Is(err, retrypolicy.ReasonNotRetryable) || retries != 0 {
		t.Errorf("%d retries, %v", retries, err)
	}
}

// Answers that another attempt replaces give their connection back.
func TestTransportKeepsItsConnection(t *testing.T) {
	var mu sync.Mutex
	requests, connections := 0, map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requests++
		connections[r.RemoteAddr] = true
		body, _ := io.ReadAll(r.Body)
		if requests < 4 || string(body) != "again" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		io.WriteString(w, strings.Repeat("x", 10_000))
	}))
	defer server.Close()
	client := server.Client()
	client.Transport = &httpretry.Transport{Base: client.Transport,
		Policy: retrypolicy.MaxAttempts{Total: 5, Policy: retrypolicy.Immediately{}}}
	req, err := http.NewRequestWithContext(t.Context(), "PUT", server.URL, strings.NewReader("again"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, _ := io.Copy(io.Discard, resp.Body); resp.StatusCode != 200 || n != 10_000 {
		t.Errorf("status %d, %d bytes", resp.StatusCode, n)
	}
	mu.Lock()
	defer mu.Unlock()
	if requests != 4 || len(connections) != 1 {
		t.Errorf("%d requests over %d connections, want 4 over 1", requests, len(connections))
	}
}

// The limiter starts from what the first answer announces.
func TestTransportTellsTheLimitThatTheServiceAnnounces(t *testing.T) {
	limiter := budget.NewAdaptive()
	busy := service{statuses: []int{200}, header: http.Header{"Ratelimit-Policy": {`"a";q=120;w=60`}}}
	tr := httpretry.Transport{Policy: limiter.Wrap(retrypolicy.NoRetry{}), Base: &busy, OnLimit: limiter.Announce}
	synctest.Test(t, func(t *testing.T) {
		busy.began = time.Now()
		for range 10 {
			resp, err := tr.RoundTrip(request("GET", ""))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
	})
	if took := busy.at[9]; took < 4*s || took > 5*s {
		t.Errorf("ten requests at 2 a second took %v", took)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A service in trouble may send the head of an answer and nothing more.
func TestTransportDoesNotWaitForTheRestOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, attempts := time.Now(), 0
		tr := httpretry.Transport{Policy: thrice(), Base: roundTripper(func(*http.Request) (*http.Response, error) {
			if attempts++; attempts > 1 {
				return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
			}
			rest, _ := io.Pipe()
			return &http.Response{StatusCode: 503, Body: rest}, nil
		})}
		answer, err := tr.RoundTrip(request("GET", ""))
		if err != nil || answer.StatusCode != 200 {
			t.Fatal(answer, err)
		}
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Error("it took", took)
		}
	})
}
