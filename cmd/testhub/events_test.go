package main

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEventsFlagsAreChecked(t *testing.T) {
	for args, want := range map[string]string{
		"-partitions 33":                      "flag -partitions: ",
		"-consumer-group a -consumer-group A": "flag -consumer-group: ",
		"-event-source all":                   "flag -event-source: ",
	} {
		var stderr bytes.Buffer
		all := append([]string{"-free", "-ca", t.TempDir() + "/ca.pem", "-control", "off"}, strings.Fields(args)...)
		require.Equal(t, 2, run(t.Context(), all, &bytes.Buffer{}, &stderr), args)
		require.Contains(t, stderr.String(), want)
	}
	var stderr bytes.Buffer
	require.Equal(t, 2, run(t.Context(), []string{"-events", "x"}, &bytes.Buffer{}, &stderr))
	require.Contains(t, stderr.String(), "flag -events: \"x\" is not an address")
}

func TestEventsPortIsOpenAtOnce(t *testing.T) {
	p := start(t)
	e := p.ready.Events
	stream, err := net.Dial("tcp", e.Address)
	require.NoError(t, err)
	require.NoError(t, stream.Close())
	require.Contains(t, e.Plain, "Endpoint=sb://"+e.Address+"/;SharedAccessKeyName=iothubowner;SharedAccessKey=")
	require.True(t, strings.HasSuffix(e.Plain, ";EntityPath=localhost;UseDevelopmentEmulator=true"))
	require.Contains(t, e.TLS, "Endpoint=sb://localhost:")
	require.NotContains(t, e.TLS, "UseDevelopmentEmulator")
	require.Contains(t, e.WebSocket, fmt.Sprintf("Endpoint=sb://localhost:%d/", p.ready.Ports["https"]))
	require.Contains(t, p.ready.Storage.ConnectionString, "BlobEndpoint=https://"+p.ready.Addresses["https"]+"/store;")
	require.Contains(t, p.ready.Storage.Container, "/store/checkpoints?")
	require.NotContains(t, p.ready.public(), "storage")
	require.NotContains(t, p.ready.public(), "events", "strings with keys are printed only")
}
