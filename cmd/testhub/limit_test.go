package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Limits below one request in 20 s take none at all: a request would wait for longer than 10 s.
func TestLimitsOfConnectsAndMessages(t *testing.T) {
	p := start(t, "-connects-per-second", "0.01")
	c := p.client("dev-1", "mqtt", &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
	require.ErrorIs(t, c.Open(soon(t)), transport.Unavailable)
	p.printed(func(l line) bool { return l.Event == "refused" && l.Device == "dev-1" && l.Code == 3 })

	p = start(t, "-messages-per-second", "0.01", "-connects-per-second", "1000")
	c = p.client("dev-1", "mqtt", &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
	require.NoError(t, c.Open(soon(t)))
	require.Error(t, c.Send(soon(t), &transport.Message{Body: []byte("too many")}))
	p.printed(func(l line) bool { return l.Event == "disconnected" && l.Device == "dev-1" })
}
