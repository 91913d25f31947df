package operr_test

import (
	"io"
	"testing"

	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

func TestOutcomeUnknown(t *testing.T) {
	e := &transport.Error{Kind: transport.Unavailable, Op: transport.OpSend, Proto: "amqp", Err: io.EOF}
	u := operr.OutcomeUnknown(e)
	require.ErrorIs(t, u, transport.ErrOutcomeUnknown)
	require.ErrorIs(t, u, io.EOF)
	require.ErrorIs(t, u, transport.Unavailable)
	require.NotErrorIs(t, e, transport.ErrOutcomeUnknown, "an error is not changed")
	require.Same(t, u, operr.OutcomeUnknown(u), "it is said once")
	require.Equal(t, "amqp send: service unavailable: it was handed over and its outcome is unknown; EOF", u.Error())
	require.Equal(t, "timed out: it was handed over and its outcome is unknown",
		operr.OutcomeUnknown(&transport.Error{Kind: transport.Timeout}).Error())
}
