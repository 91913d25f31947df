package docs

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// recipes returns the blocks of the cookbook: a recipe, and what it prints.
func recipes(t *testing.T) (all [][]block) {
	t.Helper()
	found := blocks(t, "docs/cookbook.md")
	require.Len(t, found, 2*12)
	for pair := range slices.Chunk(found, 2) {
		require.Equal(t, []string{"go", "text"}, []string{pair[0].language, pair[1].language}, pair[0].String())
		all = append(all, pair)
	}
	return all
}

// Each recipe of the cookbook runs and prints what the page says.
func TestRecipes(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(connect))
	t.Cleanup(proxy.Close)
	for _, recipe := range recipes(t) {
		t.Run(recipe[0].String(), func(t *testing.T) {
			t.Parallel()
			cmd := program(t, recipe[0].String())
			cmd.Env = append(os.Environ(), "PROXY="+strings.TrimPrefix(proxy.URL, "http://"))
			prints(t, cmd, recipe[1].text)
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
