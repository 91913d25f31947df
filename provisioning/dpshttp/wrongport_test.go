package dpshttp_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// An MQTT broker closes the connection when it gets a request.
func TestAPortThatSpeaksAnotherProtocolIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1<<16))
			_ = c.Close()
		}
	}()
	defer func() {
		_ = l.Close()
		<-served
	}()
	id := &provisioning.Identity{IDScope: "0ne00ABCDEF", RegistrationID: "reg-1"}
	id.Sign, err = transport.SharedKey(groupKey)
	require.NoError(t, err)
	c, err := provisioning.New(id, dpshttp.New(&netopt.Options{Plaintext: true, Addr: l.Addr().String()}),
		&provisioning.Options{Policy: retrypolicy.NoRetry{}})
	require.NoError(t, err)
	_, err = c.Register(t.Context())
	require.ErrorContains(t, err, "in place of the first answer; this port may speak another protocol than HTTP")
}
