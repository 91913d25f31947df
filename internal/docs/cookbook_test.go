package docs

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each recipe of the cookbook runs and prints what the page says.
func TestRecipes(t *testing.T) {
	all := blocks(t, "docs/cookbook.md")
	require.Len(t, all, 2*12)
	programs := map[string]string{}
	name := func(i int) string { return fmt.Sprintf("recipe%d", i) }
	for i := 0; i < len(all); i += 2 {
		require.Equal(t, []string{"go", "text"}, []string{all[i].language, all[i+1].language}, all[i].String())
		programs[name(i)] = framed(t, all[i].text)
	}
	command := buildPrograms(t, programs)
	proxy := httptest.NewServer(http.HandlerFunc(connect))
	t.Cleanup(proxy.Close)
	for i := 0; i < len(all); i += 2 {
		t.Run(all[i].String(), func(t *testing.T) {
			t.Parallel()
			cmd := command(name(i))
			cmd.Env = append(os.Environ(), "PROXY="+strings.TrimPrefix(proxy.URL, "http://"))
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			require.NoError(t, err, stderr.String())
			require.Equal(t, all[i+1].text, string(out))
		})
	}
}

// connect is a proxy that wants the password of the recipe.
func connect(w http.ResponseWriter, r *http.Request) {
	r.Header.Set("Authorization", r.Header.Get("Proxy-Authorization"))
	if user, password, _ := r.BasicAuth(); r.Method != http.MethodConnect || user != "user" || password != "secret" {
		http.Error(w, "CONNECT with a password", http.StatusProxyAuthRequired)
		return
	}
	hub, err := net.Dial("tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer hub.Close()
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() { _, _ = io.Copy(hub, client) }()
	_, _ = io.Copy(client, hub)
}
