package amqpconn

import (
	"errors"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

func TestTextsOfPeersAreBounded(t *testing.T) {
	long := strings.Repeat("é", 5000)
	c := ConditionOf("link", &amqp.Error{Condition: amqp.ErrCond(long), Description: long})
	require.Less(t, len(c.Error()), 3*scrub.MaxPeer)
	require.NotContains(t, c.Description, "�")
}

func TestHandshakeErrors(t *testing.T) {
	protocol := dialer.Protocol{Name: "amqp", Kind: Kind}
	for _, c := range []struct {
		text string
		kind transport.Kind
	}{
		{"SASL PLAIN auth failed with code 0x1: user secret-token", transport.Unauthorized},
		{"SASL PLAIN auth failed with code 0x7f: ", transport.Unknown},
		{"no supported auth mechanism ([X])", transport.Unsupported},
		{"unexpected protocol header 3", transport.Protocol},
		{"anything else", transport.Network},
	} {
		e := protocol.Error(handshakeError(errors.New(c.text)))
		require.Equal(t, c.kind, e.Kind, c.text)
		require.NotContains(t, e.Error(), "secret")
	}
}
