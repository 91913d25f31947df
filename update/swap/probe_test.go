//go:build unix

package swap

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestACommandsFailureHasTheEndOfItsOutput(t *testing.T) {
	require.NoError(t, Command("true")(t.Context()))
	err := Command("sh", "-c", "seq 1000; echo no such unit >&2; exit 5")(t.Context())
	require.ErrorContains(t, err, "sh: exit status 5: ")
	require.True(t, strings.HasSuffix(err.Error(), "1000\nno such unit"), err)
	require.Less(t, len(err.Error()), 600)
	require.ErrorContains(t, Command("no-such-program")(t.Context()), "no-such-program")
}

// A command that does not end is killed with its context, also if it has started another program.
func TestACommandEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorContains(t, Command("sh", "-c", "sleep 60")(ctx), "killed")
}

// Such as a script that starts a daemon: the health of the service says whether that works.
func TestACommandMayLeaveAProcessThatHoldsItsOutput(t *testing.T) {
	require.NoError(t, Command("sh", "-c", "sleep 3 &")(t.Context()))
}

func TestReadinessOfAService(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	require.NoError(t, HTTP(server.URL)(t.Context()))
	status = http.StatusServiceUnavailable
	require.ErrorContains(t, HTTP(server.URL)(t.Context()), "503")
	require.Error(t, HTTP("http://%")(t.Context()))

	socket := filepath.Join(t.TempDir(), "ready")
	require.Error(t, Dial("unix", socket)(t.Context()))
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, Dial("unix", socket)(t.Context()))
}
