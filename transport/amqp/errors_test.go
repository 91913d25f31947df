package amqp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

// conditions are all that a hub and its relatives are known to say, and whether another try is worth it.
var conditions = []struct {
	condition string
	kind      transport.Kind
	retry     bool
}{
	{"amqp:internal-error", transport.Unavailable, true},
	{"amqp:not-found", transport.NotFound, false},
	{"amqp:unauthorized-access", transport.Unauthorized, false},
	{"amqp:decode-error", transport.Invalid, false},
	{"amqp:resource-limit-exceeded", transport.Quota, true},
	{"amqp:not-allowed", transport.Forbidden, false},
	{"amqp:invalid-field", transport.Invalid, false},
	{"amqp:not-implemented", transport.Unsupported, false},
	{"amqp:resource-locked", transport.Unavailable, true},
	{"amqp:precondition-failed", transport.Conflict, false},
	{"amqp:resource-deleted", transport.NotFound, false},
	{"amqp:illegal-state", transport.Protocol, false},
	{"amqp:frame-size-too-small", transport.Protocol, false},
	{"amqp:connection:forced", transport.Unavailable, true},
	{"amqp:connection:framing-error", transport.Network, true},
	{"amqp:connection:redirect", transport.Unavailable, true},
	{"amqp:session:window-violation", transport.Network, true},
	{"amqp:session:errant-link", transport.Network, true},
	{"amqp:session:handle-in-use", transport.Network, true},
	{"amqp:session:unattached-handle", transport.Network, true},
	{"amqp:link:detach-forced", transport.Unavailable, true},
	{"amqp:link:transfer-limit-exceeded", transport.Unavailable, true},
	{"amqp:link:message-size-exceeded", transport.TooLarge, false},
	{"amqp:link:redirect", transport.Unavailable, true},
	{"amqp:link:stolen", transport.Unavailable, true},
	{"amqp:transaction:unknown-id", transport.Unavailable, true},
	{"amqp:transaction:rollback", transport.Unavailable, true},
	{"amqp:transaction:timeout", transport.Timeout, true},
	{"com.microsoft:timeout", transport.Timeout, true},
	{"com.microsoft:server-busy", transport.Unavailable, true},
	{"com.microsoft:operation-cancelled", transport.Unavailable, true},
	{"com.microsoft:message-lock-lost", transport.Conflict, false},
	{"com.microsoft:session-cannot-be-locked", transport.Conflict, false},
	{"com.microsoft:link-creation-conflict", transport.Unavailable, true},
	{"com.microsoft:device-already-exists", transport.Conflict, false},
	{"com.microsoft:precondition-failed", transport.Conflict, false},
	{"com.microsoft:iot-hub-not-found-error", transport.NotFound, false},
	{"com.microsoft:argument-error", transport.Invalid, false},
	{"com.microsoft:argument-out-of-range", transport.Invalid, false},
	{"com.microsoft:device-container-throttled", transport.Throttled, true},
	{"com.microsoft:quota-exceeded", transport.Quota, true},
	{"com.microsoft:iot-hub-suspended", transport.Forbidden, false},
	{"com.microsoft:entity-disabled", transport.Forbidden, false},
	{"proton:io", transport.Network, true},
	{"com.example:never-heard-of", transport.Unknown, false},
	{"", transport.Unknown, false},
}

func TestEachConditionHasItsKind(t *testing.T) {
	listed := 0
	for _, c := range conditions {
		require.Equal(t, c.kind, conditionKind(c.condition), c.condition)
		require.Equal(t, c.retry, errfilter.OfKind(c.kind).Retry, c.condition)
		if c.kind != transport.Unknown {
			listed++
		}
	}
	require.Len(t, conditionTable, listed, "each row is looked at")
}

// The same conditions where they can appear: refusing a message, ending a link, a session, a connection.
func TestConditionsBecomeErrors(t *testing.T) {
	for _, c := range conditions {
		said := &amqp.Error{Condition: amqp.ErrCond(c.condition), Description: "text"}
		e := verdict(&amqp.StateRejected{Error: said})
		require.Equal(t, c.kind, e.Kind)
		require.Equal(t, transport.Operation, e.Scope)
		require.ErrorContains(t, e, c.condition)

		end := c.kind
		if end == transport.Unknown {
			end = transport.Network
		}
		for what, err := range map[string]error{
			"link": &amqp.LinkError{RemoteErr: said}, "session": &amqp.SessionError{RemoteErr: said}, "connection": &amqp.ConnError{RemoteErr: said},
		} {
			why := ended(err)
			require.Equal(t, &ConditionError{what, c.condition, "text"}, why)
			e := lossOf(why)
			require.Equal(t, end, e.Kind)
			require.Equal(t, transport.Connection, e.Scope)
			require.Equal(t, transport.OpRun, e.Op)
			found, ok := errors.AsType[*ConditionError](error(e))
			require.True(t, ok)
			require.Same(t, why, found)
			require.Equal(t, end, protocol.Error(why).Kind, "the same in a dial")
		}
	}
	require.Nil(t, ended(&amqp.ConnError{}), "then the network knows")
	require.Equal(t, "link", ended(&amqp.LinkError{}).What)
	require.Nil(t, ended(io.EOF))
}

func TestOtherOutcomes(t *testing.T) {
	require.Nil(t, verdict(nil))
	require.Nil(t, verdict(&amqp.StateAccepted{}))
	require.Equal(t, transport.Unknown, verdict(&amqp.StateRejected{}).Kind, "rejected without a reason: not again")
	require.Equal(t, transport.Unavailable, verdict(&amqp.StateReceived{}).Kind)
}

func TestLosses(t *testing.T) {
	for _, c := range []struct {
		cause error
		kind  transport.Kind
	}{
		{errHubClosed, transport.Network},
		{io.EOF, transport.Network},
		{os.ErrDeadlineExceeded, transport.Timeout},
		{&writeError{os.ErrDeadlineExceeded}, transport.Timeout},
		{errNoAnswer, transport.Timeout},
		{context.DeadlineExceeded, transport.Timeout},
		{fmt.Errorf("read: %w", errFrameSize), transport.Network},
		{errGarbled, transport.Network},
		{&transport.Error{Kind: transport.Throttled}, transport.Throttled},
	} {
		require.Equal(t, c.kind, lossOf(c.cause).Kind, "%v", c.cause)
	}
}

func TestTextsOfPeersAreBounded(t *testing.T) {
	long := strings.Repeat("é", 5000)
	c := conditionOf("link", &amqp.Error{Condition: amqp.ErrCond(long), Description: long})
	require.Less(t, len(c.Error()), 3*maxDescription)
	require.NotContains(t, c.Description, "�")
}

func TestHandshakeErrors(t *testing.T) {
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
