package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// asked returns a request with headers, "Name: value" each. Host is one of them.
func asked(method, path string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	r.Host = "127.0.0.1:80"
	for _, h := range headers {
		name, v, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = v
			continue
		}
		r.Header.Add(name, v)
	}
	return r
}

const (
	navigates = "Sec-Fetch-Mode: navigate"
	document  = "Sec-Fetch-Dest: document"
	html      = "Accept: text/html"
)

// Web pages of other sites can reach loopback and must not control the hub.
func TestTheGuardOnLoopback(t *testing.T) {
	g := &guard{}
	for _, c := range []struct {
		field string // that is refused
		r     *http.Request
	}{
		{"", asked("GET", "/hub")},
		{"", asked("POST", "/reset", "Host: localhost:80")},
		{"", asked("POST", "/reset", "Host: [::1]:80")},
		{"", asked("POST", "/reset", "Host: [::1]")},
		{"", asked("POST", "/reset", "Origin: http://127.0.0.1:80", "Sec-Fetch-Site: same-origin")},
		{"", asked("GET", "/", html, "Sec-Fetch-Site: none", navigates, document)},
		{"", asked("GET", "/", html, "Sec-Fetch-Site: cross-site", navigates, document)},
		{"", asked("GET", "/health", "Host: testhub:80", "Sec-Fetch-Site: cross-site")},
		{"Host", asked("GET", "/hub", "Host: attacker.test")},
		{"Host", asked("GET", "/", html, "Host: attacker.test")},
		{"Host", asked("GET", "/hub", "Host: localhost.attacker.test:80")},
		{"Host", asked("POST", "/reset", "Host: attacker.test", "Origin: http://attacker.test")},
		{"Host", asked("POST", "/health", "Host: attacker.test")},
		{"Origin", asked("POST", "/reset", "Origin: http://attacker.test")},
		{"Origin", asked("POST", "/reset", "Origin: null")},
		{"Origin", asked("POST", "/reset", "Origin: ")},
		{"Origin", asked("POST", "/reset", "Origin: http://127.0.0.1:81")},
		{"Origin", asked("POST", "/reset", "Origin: https://127.0.0.1:80")},
		{"Origin", asked("POST", "/reset", "Origin: http://127.0.0.1:80", "Origin: http://attacker.test")},
		{"Sec-Fetch-Site", asked("GET", "/messages", "Sec-Fetch-Site: cross-site")},
		{"Sec-Fetch-Site", asked("GET", "/messages", "Sec-Fetch-Site: same-site")},
		{"Sec-Fetch-Site", asked("GET", "/messages", html, "Sec-Fetch-Site: cross-site", navigates, document)},
		{"Sec-Fetch-Site", asked("GET", "/", html, "Sec-Fetch-Site: cross-site", navigates, "Sec-Fetch-Dest: iframe")},
		{"Sec-Fetch-Site", asked("GET", "/page/main.js", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: script")},
	} {
		problem := g.check(c.r)
		if c.field == "" {
			require.Nil(t, problem, "%s %s %v %v", c.r.Method, c.r.URL, c.r.Host, c.r.Header)
			continue
		}
		require.NotNil(t, problem, "%s %s %v %v", c.r.Method, c.r.URL, c.r.Host, c.r.Header)
		require.Equal(t, []any{c.field, 403}, []any{problem.Field, problem.status})
	}
}

// With a token the name of the host does not matter, because no page of another site has the token.
func TestTheGuardWithAToken(t *testing.T) {
	const token = "0123456789abcdef"
	g := &guard{token: token}
	for _, c := range []struct {
		status int
		r      *http.Request
	}{
		{0, asked("POST", "/reset", "Authorization: Bearer "+token)},
		{0, asked("POST", "/reset", "Authorization: Bearer "+token, "Host: testhub:80", "Origin: http://testhub:80")},
		{0, asked("GET", "/", html, "Host: testhub:80")},
		{0, asked("GET", "/page/main.js")},
		{0, asked("GET", "/health")},
		{401, asked("GET", "/")},
		{401, asked("GET", "/hub")},
		{401, asked("GET", "/hub", html)},
		{401, asked("POST", "/page/main.js")},
		{401, asked("GET", "/hub", "Authorization: Bearer ")},
		{401, asked("GET", "/hub", "Authorization: "+token)},
		{401, asked("GET", "/hub", "Authorization: Bearer "+token+"0")},
		{401, asked("GET", "/hub", "Authorization: Basic "+token)},
		{401, asked("GET", "/hub?token="+token)},
		{403, asked("POST", "/reset", "Authorization: Bearer "+token, "Origin: http://attacker.test")},
	} {
		problem := g.check(c.r)
		if c.status == 0 {
			require.Nil(t, problem, "%s %s %v", c.r.Method, c.r.URL, c.r.Header)
			continue
		}
		require.NotNil(t, problem, "%s %s %v", c.r.Method, c.r.URL, c.r.Header)
		require.Equal(t, c.status, problem.status, "%s %s %v", c.r.Method, c.r.URL, c.r.Header)
		require.NotContains(t, problem.Error(), token)
	}
}

// An address that other machines can reach has a token, which is printed once and nowhere else.
func TestAControlAPIThatIsNotOnLoopback(t *testing.T) {
	p := start(t, "-control", "0.0.0.0:0")
	require.GreaterOrEqual(t, len(p.ready.ControlToken), leastToken)
	require.True(t, strings.HasPrefix(p.ready.Control, "http://localhost:"), p.ready.Control)
	require.Equal(t, "Authorization", p.refused(401, "GET", "/hub", "").Field)
	r, err := http.NewRequestWithContext(soon(t), "GET", p.ready.Control+"/hub", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+p.ready.ControlToken)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, 200, answer.StatusCode)
	var said bytes.Buffer
	_, err = said.ReadFrom(answer.Body)
	require.NoError(t, err)
	require.NotContains(t, said.String(), p.ready.ControlToken)
	require.Contains(t, p.ready.page(), "/#token="+p.ready.ControlToken)
}

func TestBadTokens(t *testing.T) {
	for _, token := range []string{"short", "0123456789 abcdef", "0123456789abcdeé", "0123456789abcdef\n"} {
		var stderr bytes.Buffer
		_, err := parse([]string{"-control-token", token}, &stderr)
		require.Error(t, err)
		require.Contains(t, stderr.String(), "flag -control-token")
		require.NotContains(t, stderr.String(), token)
	}
	s, err := parse([]string{"-free", "-control-token", "0123456789abcdef"}, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, "0123456789abcdef", s.token, "a token is in force on loopback too")
}

// A browser gets the page, with headers that keep scripts of texts and of other sites out; a
// program gets the list of requests.
func TestTheRootIsAPageForBrowsers(t *testing.T) {
	p := start(t)
	require.NotEmpty(t, p.good("GET", "/", "")["requests"])
	for _, path := range []string{"/", "/page/main.js", "/page/page.css"} {
		r, err := http.NewRequestWithContext(soon(t), "GET", p.ready.Control+path, nil)
		require.NoError(t, err)
		r.Header.Set("Accept", "text/html,application/xhtml+xml")
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, 200, answer.StatusCode)
		require.NotContains(t, answer.Header.Get("Content-Security-Policy"), "unsafe")
		require.Contains(t, answer.Header.Get("Content-Security-Policy"), "default-src 'none'")
		require.Equal(t, "nosniff", answer.Header.Get("X-Content-Type-Options"))
		require.NotEqual(t, "application/json", answer.Header.Get("Content-Type"))
	}
	r, err := http.Get(p.ready.Control + "/page/")
	require.NoError(t, err)
	r.Body.Close()
	require.Equal(t, 404, r.StatusCode, "no list of files")
}
