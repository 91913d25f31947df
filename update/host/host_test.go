package host_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/host"
)

const content = "the whole content of a file"

func TestAFileIsReadFromAnyOffset(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
	}))
	defer server.Close()
	fetch := host.NewFetcher(nil)
	for _, offset := range []int64{0, 1, int64(len(content)) - 1} {
		r, err := fetch.Fetch(t.Context(), server.URL+"/a?sig=secret", offset)
		require.NoError(t, err)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, content[offset:], string(got))
		require.NoError(t, r.Close())
	}
	_, err := fetch.Fetch(t.Context(), server.URL, int64(len(content)))
	require.ErrorContains(t, err, "shorter")
	require.Equal(t, transport.Protocol, transport.KindOf(err))
}

func TestAnswersThatAreNotTheFileAreRefused(t *testing.T) {
	for name, row := range map[string]struct {
		status  int
		headers map[string]string
		want    transport.Kind
		after   time.Duration
	}{
		"no ranges": {status: 200, want: transport.Unsupported},
		"another range": {status: 206, headers: map[string]string{"Content-Range": "bytes 70-80/100"},
			want: transport.Protocol},
		"no range":   {status: 206, want: transport.Protocol},
		"no content": {status: 204, want: transport.Protocol},
		"a redirect": {status: 304, want: transport.Protocol},
		"forbidden":  {status: 403, want: transport.Forbidden},
		"gone":       {status: 404, want: transport.NotFound},
		"busy": {status: 503, headers: map[string]string{"Retry-After": "7"}, want: transport.Unavailable,
			after: 7 * time.Second},
		"throttled": {status: 429, want: transport.Throttled},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for key, value := range row.headers {
					w.Header().Set(key, value)
				}
				w.WriteHeader(row.status)
			}))
			defer server.Close()
			_, err := host.NewFetcher(server.Client()).Fetch(t.Context(), server.URL+"/a?sig=secret", 7)
			require.Equal(t, row.want, transport.KindOf(err), err)
			require.Equal(t, row.after, transport.Find(err).RetryAfter)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

// The address that sends the redirect may grant access.
func TestARedirectDoesNotTellTheAddressBefore(t *testing.T) {
	referers := make(chan string, 1)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		referers <- r.Referer()
		_, _ = io.WriteString(w, content)
	}))
	defer other.Close()
	first := httptest.NewServer(http.RedirectHandler(other.URL+"/b", http.StatusFound))
	defer first.Close()
	follows := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
	for _, client := range []*http.Client{nil, follows} {
		r, err := host.NewFetcher(client).Fetch(t.Context(), first.URL+"/a?sig=secret", 0)
		require.NoError(t, err)
		require.Empty(t, <-referers)
		require.NoError(t, r.Close())
	}
}

func TestEndlessRedirectsFail(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("/a?sig=secret", http.StatusFound))
	defer server.Close()
	_, err := host.NewFetcher(nil).Fetch(t.Context(), server.URL, 0)
	require.ErrorContains(t, err, "10 redirects")
	require.ErrorIs(t, err, transport.Protocol, "not worth a retry")
	require.NotContains(t, err.Error(), "secret")
	follows := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
	_, err = host.NewFetcher(follows).Fetch(t.Context(), server.URL, 0)
	require.ErrorContains(t, err, "10 redirects", "also with a CheckRedirect that has no bound")
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://x:y/%zz?sig=secret")
		w.WriteHeader(http.StatusFound)
	}))
	defer bad.Close()
	_, err = host.NewFetcher(nil).Fetch(t.Context(), bad.URL, 0)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}

func TestAServerThatIsNotThereIsANetworkFailure(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	_, err := host.NewFetcher(nil).Fetch(t.Context(), server.URL+"/a?sig=secret", 0)
	require.Equal(t, transport.Network, transport.KindOf(err))
	require.NotContains(t, err.Error(), "secret")
	for _, bad := range []string{"", "file:///etc/passwd", "https://", ":"} {
		_, err := host.NewFetcher(nil).Fetch(t.Context(), bad, 0)
		require.Equal(t, transport.Invalid, transport.KindOf(err), bad)
	}
}

// dialed returns a client whose server, the function, has the other end of a pipe.
func dialed(server func(net.Conn)) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go server(there)
		return here, nil
	}}}
}

func TestASilentServerIsLost(t *testing.T) {
	for name, answer := range map[string]string{"before the answer": "", "in the file": "HTTP/1.1 200 OK\r\n" +
		"Content-Length: 9\r\n\r\nabc"} {
		testkit.Run(t, name, func(t *testing.T) {
			client := dialed(func(c net.Conn) {
				_, _ = c.Read(make([]byte, 4096))
				_, _ = io.WriteString(c, answer)
				_, _ = c.Read(make([]byte, 1)) // until the client closes
				_ = c.Close()
			})
			began := time.Now()
			r, err := host.NewFetcher(client).Fetch(t.Context(), "http://files/a", 0)
			if answer != "" {
				require.NoError(t, err)
				time.Sleep(time.Hour) // a slow caller is no silent server
				_, err = io.ReadAll(r)
				began = began.Add(time.Hour)
				_ = r.Close()
			}
			require.Equal(t, transport.Timeout, transport.KindOf(err), err)
			require.Equal(t, 30*time.Second, time.Since(began))
			client.CloseIdleConnections()
		})
	}
}

// Bytes may have been damaged, so another answer may be right.
func TestAMalformedAnswerIsNoNetworkFailure(t *testing.T) {
	for _, answer := range []string{"SSH-2.0-OpenSSH\r\n", "HTTP/9 what\r\n\r\n", "HTTP/1.1 2x6 OK\r\n\r\n",
		"HTTP/1.1 206 OK\r\n: x\r\n\r\n", "HTTP/1.1 206 OK\r\nContent-Length: -7\r\n\r\n",
		"HTTP/1.1 206 OK\r\nX: " + strings.Repeat("x", 1<<20)} {
		client := dialed(func(c net.Conn) {
			defer c.Close()
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, answer)
		})
		client.Transport.(*http.Transport).MaxResponseHeaderBytes = 64 << 10
		_, err := host.NewFetcher(client).Fetch(t.Context(), "http://files/a?sig=secret", 0)
		require.ErrorIs(t, err, transport.Protocol, "%.50q: %v", answer, err)
		require.ErrorIs(t, err, transport.ErrMaybeDamaged)
		require.NotContains(t, err.Error(), "secret")
		client.CloseIdleConnections()
	}
}

func TestTheStateIsKeptInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	store := host.NewStore(path)
	state, err := store.Load()
	require.NoError(t, err)
	require.Nil(t, state)
	require.NoError(t, store.Save([]byte("one")))
	require.NoError(t, store.Save([]byte("two")))
	state, err = host.NewStore(path).Load()
	require.NoError(t, err)
	require.Equal(t, "two", string(state))
	require.Error(t, host.NewStore(filepath.Join(path, "no")).Save(nil))
}
