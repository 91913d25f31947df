package endpoint

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

func TestFailedHandshakesOfMQTT(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind transport.Kind
	}{
		{wire.NewViolation("x"), transport.Protocol},
		{&wire.ConnackError{Code: 5}, transport.Unauthorized},
		{fmt.Errorf("read: %w", &wire.ConnackError{Code: 3}), transport.Unavailable},
		{errors.New("anything else"), transport.Network},
	} {
		e := Error(c.err)
		require.Equal(t, c.kind, e.Kind)
		require.Equal(t, "mqtt", e.Proto)
		require.ErrorIs(t, e, c.err)
	}
	require.ErrorContains(t, Error(wire.NewViolation("x")), "check host and port")
}
