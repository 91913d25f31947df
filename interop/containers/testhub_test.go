package containers

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const token = "only-for-this-test" // of the control API: it is open to other machines in a container

// A hub is a testhub in a container of its own.
type hub struct {
	t         *testing.T
	container *testcontainers.DockerContainer
	control   string
}

func startHub(ctx context.Context, t *testing.T) *hub {
	testcontainers.SkipIfProviderIsNotHealthy(t) // needs Docker or Podman
	container, err := testcontainers.Run(ctx, "",
		testcontainers.WithDockerfile(testcontainers.FromDockerfile{
			Context:    "../..", // a clone of Hubline
			Dockerfile: "cmd/testhub/container/Dockerfile",
			KeepImage:  true,
		}),
		testcontainers.WithCmd("-control", "0.0.0.0:8080", "-control-token", token),
		testcontainers.WithExposedPorts("8883/tcp", "5671/tcp", "8443/tcp", "8080/tcp"),
		testcontainers.WithWaitStrategy(wait.ForHTTP("/health").WithPort("8080/tcp")),
	)
	testcontainers.CleanupContainer(t, container)
	require.NoError(t, err)
	h := &hub{t: t, container: container}
	h.control = "http://" + h.address(ctx, "8080/tcp")
	return h
}

// address returns where a port of the container is.
func (h *hub) address(ctx context.Context, port string) string {
	at, err := h.container.PortEndpoint(ctx, port, "")
	require.NoError(h.t, err)
	return at
}

// ask sends a request to the control API.
func (h *hub) ask(ctx context.Context, method, path, body string, answer any) {
	r, err := http.NewRequestWithContext(ctx, method, h.control+path, strings.NewReader(body))
	require.NoError(h.t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	got, err := http.DefaultClient.Do(r)
	require.NoError(h.t, err)
	defer got.Body.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(got.Body)
	require.NoError(h.t, err)
	require.Equal(h.t, http.StatusOK, got.StatusCode, text.String())
	require.NoError(h.t, json.Unmarshal(text.Bytes(), answer))
}

func TestADeviceReportsToAHubInAContainer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // the first build of the image
	defer cancel()
	h := startHub(ctx, t)

	var trust struct{ PEM string }
	h.ask(ctx, "GET", "/certificate", "", &trust)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(trust.PEM)))
	var added struct{ ConnectionString string }
	h.ask(ctx, "POST", "/devices", `{"id":"thermometer"}`, &added)

	creds, err := device.ParseConnectionString(added.ConnectionString)
	require.NoError(t, err)
	network := netopt.Options{Addr: h.address(ctx, "8883/tcp"), TLS: &tls.Config{RootCAs: roots}}
	client, err := device.New(creds, mqtt.New(&mqtt.Options{Network: network}), nil)
	require.NoError(t, err)
	require.NoError(t, client.Open(ctx))
	require.NoError(t, client.Send(ctx, &transport.Message{Body: []byte(`{"celsius":21.5}`)}))
	require.NoError(t, client.Close())

	var log struct {
		Messages []struct{ Device, Body string }
	}
	h.ask(ctx, "GET", "/messages?last=1", "", &log)
	require.Len(t, log.Messages, 1)
	require.Equal(t, "thermometer", log.Messages[0].Device)
	require.Equal(t, `{"celsius":21.5}`, log.Messages[0].Body)
}
