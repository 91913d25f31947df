package httprange

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

var _ agent.Fetcher = (*Fetcher)(nil)

func TestAFetcherReadsTheRestOfAFile(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		whole, rest := part(image, 30, 36, `"v1"`), part(image, 20, 36, `"v1"`)
		server := &script{answers: []string{rest[:len(rest)-10] + "CLOSE", whole, whole[:len(whole)-3] + "CLOSE"}}
		var hosts []string
		f := &Fetcher{Dial: func(ctx context.Context, host string, secure bool) (Conn, error) {
			require.True(t, secure)
			hosts = append(hosts, host)
			return server.dial(ctx)
		}}
		fetch := func(offset int64) ([]byte, error) {
			body, err := f.Fetch(t.Context(), "https://files.example.com:8443/7.bin?sig=secret", offset)
			require.NoError(t, err)
			all, err := io.ReadAll(body)
			require.NoError(t, body.Close())
			return all, err
		}
		_, err := fetch(20)
		require.ErrorIs(t, err, transport.Network, "six bytes, and the server hangs up")
		all, err := fetch(30)
		require.NoError(t, err)
		require.Equal(t, image[30:], string(all))
		_, err = fetch(30)
		require.ErrorIs(t, err, transport.Network)
		require.Equal(t, []string{"files.example.com:8443", "files.example.com:8443", "files.example.com:8443"}, hosts)
		require.Contains(t, server.requests[0],
			"GET /7.bin?sig=secret HTTP/1.1\r\nHost: files.example.com:8443\r\nRange: bytes=20-")
	})
}

// A query may grant access, and errors about connections name the host.
func TestAFetcherTellsDialTheHostAlone(t *testing.T) {
	for url, path := range map[string]string{
		"http://example.com": "/", "http://example.com#top": "/", "http://example.com?sig=a/b": "/?sig=a/b",
		"http://example.com/a?sig=b#top": "/a?sig=b",
	} {
		testkit.Bubble(t, func(t *testing.T) {
			server := &script{answers: []string{part(image, 0, 36, `"v1"`)}}
			f := &Fetcher{Dial: func(ctx context.Context, host string, _ bool) (Conn, error) {
				require.Equal(t, "example.com", host)
				return server.dial(ctx)
			}}
			body, err := f.Fetch(t.Context(), url, 0)
			require.NoError(t, err)
			_, err = body.Read(make([]byte, 1))
			require.NoError(t, err)
			require.NoError(t, body.Close())
			require.Contains(t, server.requests[0], "GET "+path+" HTTP/1.1\r\n")
		})
	}
}

func TestAFetcherRefusesOtherURLs(t *testing.T) {
	f := new(Fetcher)
	for _, url := range []string{"", "ftp://example.com/a", "/a", "https://", "https://a b/c"} {
		_, err := f.Fetch(t.Context(), url, 0)
		require.ErrorIs(t, err, transport.Invalid, url)
	}
}
