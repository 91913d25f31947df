package setup_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An invalid command line has status 2 and a text that says what to give. A failed run has status
// 1.
func TestExitStatus(t *testing.T) {
	bin := os.Getenv("HUBLINE_EXAMPLES")
	if bin == "" {
		t.Skip("it needs the programs in a folder: go build -o DIR ./examples/..., HUBLINE_EXAMPLES=DIR")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range []struct {
		status int
		want   string
		args   []string
	}{
		{2, `"more"`, []string{"telemetry", "more"}},
		{2, `"more"`, []string{"config", "more"}},
		{2, `"more"`, []string{"module", "more"}},
		{2, "mqtt", []string{"module", "-transport", "pigeon"}},
		{2, `"more"`, []string{"methods", "more"}},
		{2, `"more"`, []string{"fan", "more"}},
		{2, `"more"`, []string{"fileupload", "one", "more"}},
		{2, "azure or none", []string{"telemetry", "-policy", "hope"}},
		{2, "rate up to", []string{"telemetry", "-rate", "0"}},
		{2, "mqtt", []string{"config", "-transport", "pigeon"}},
		{2, "HUBLINE_CONNECTION_STRING", []string{"fan", "-hub", "http://127.0.0.1:1"}},
		{2, "-transport", []string{"fan", "-nothing"}},
		{2, `"more"`, []string{"fleet", "more"}},
		{2, "HUBLINE_GROUP_KEY", []string{"fleet"}},
		{2, "JOB_COMPLETION_INDEX", []string{"fleet", "-per-job", "5"}},
		{2, "-rate", []string{"fleet", "-rate", "NaN"}},
		{2, "environment", []string{"module", "-hub", "http://127.0.0.1:1"}},
		{1, "prints as page", []string{"fan", "-hub", "http://127.0.0.1:1", "-connect",
			"HostName=localhost;DeviceId=a;SharedAccessKey=YQ=="}},
		{1, "no such file", []string{"fileupload", "/nowhere/at/all"}},
		{1, "write ws://", []string{"broker", "-url", "http://127.0.0.1:1883"}},
	} {
		var stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, filepath.Join(bin, c.args[0]), c.args[1:]...)
		cmd.Env = []string{}
		cmd.Stderr = &stderr
		var exit *exec.ExitError
		require.True(t, errors.As(cmd.Run(), &exit), "%v", c.args)
		require.Equal(t, c.status, exit.ExitCode(), "%v: %s", c.args, &stderr)
		require.Contains(t, stderr.String(), c.want)
	}
}
