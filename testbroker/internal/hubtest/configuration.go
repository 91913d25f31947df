package hubtest

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
)

// Applied waits until configurations have been applied.
func Applied() {
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

// Configure puts a configuration, which must be accepted.
func Configure(p *Poster, id, body string, header ...string) map[string]any {
	p.T.Helper()
	r := p.Do("PUT", "/configurations/"+id+Version, body, header...)
	require.Equal(p.T, 200, r.StatusCode, r.Text)
	var v map[string]any
	require.NoError(p.T, json.Unmarshal([]byte(r.Text), &v))
	return v
}

// Desired returns the desired properties of a device.
func Desired(t *testing.T, h *testbroker.Hub, id string) string {
	twin := Twin(t, h, id)
	return string(twin.Desired)
}
