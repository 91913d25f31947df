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
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

// conditions are all that a hub and its relatives are known to say, whether another try is worth
// it, and what they are about.
var conditions = []struct {
	condition string
	kind      transport.Kind
	retry     bool
	about     about // where it refuses a message
}{
	{"amqp:internal-error", transport.Unavailable, true, moment},
	{"amqp:not-found", transport.NotFound, false, identity},
	{"amqp:unauthorized-access", transport.Unauthorized, false, identity},
	{"amqp:decode-error", transport.Invalid, false, content},
	{"amqp:resource-limit-exceeded", transport.Quota, true, moment},
	{"amqp:not-allowed", transport.Forbidden, false, request},
	{"amqp:invalid-field", transport.Invalid, false, content},
	{"amqp:not-implemented", transport.Unsupported, false, request},
	{"amqp:resource-locked", transport.Unavailable, true, moment},
	{"amqp:precondition-failed", transport.Conflict, false, request},
	{"amqp:resource-deleted", transport.NotFound, false, identity},
	{"amqp:illegal-state", transport.Protocol, false, request},
	{"amqp:frame-size-too-small", transport.Protocol, false, request},
	{"amqp:connection:forced", transport.Unavailable, true, moment},
	{"amqp:connection:framing-error", transport.Network, true, moment},
	{"amqp:connection:redirect", transport.Unavailable, true, moment},
	{"amqp:session:window-violation", transport.Network, true, moment},
	{"amqp:session:errant-link", transport.Network, true, moment},
	{"amqp:session:handle-in-use", transport.Network, true, moment},
	{"amqp:session:unattached-handle", transport.Network, true, moment},
	{"amqp:link:detach-forced", transport.Unavailable, true, moment},
	{"amqp:link:transfer-limit-exceeded", transport.Unavailable, true, moment},
	{"amqp:link:message-size-exceeded", transport.TooLarge, false, content},
	{"amqp:link:redirect", transport.Unavailable, true, moment},
	{"amqp:link:stolen", transport.Unavailable, true, moment},
	{"amqp:transaction:unknown-id", transport.Unavailable, true, moment},
	{"amqp:transaction:rollback", transport.Unavailable, true, moment},
	{"amqp:transaction:timeout", transport.Timeout, true, moment},
	{"com.microsoft:timeout", transport.Timeout, true, moment},
	{"com.microsoft:server-busy", transport.Unavailable, true, moment},
	{"com.microsoft:operation-cancelled", transport.Unavailable, true, moment},
	{"com.microsoft:message-lock-lost", transport.Conflict, false, request},
	{"com.microsoft:session-cannot-be-locked", transport.Conflict, false, request},
	{"com.microsoft:link-creation-conflict", transport.Unavailable, true, moment},
	{"com.microsoft:device-already-exists", transport.Conflict, false, request},
	{"com.microsoft:precondition-failed", transport.Conflict, false, request},
	{"com.microsoft:iot-hub-not-found-error", transport.NotFound, false, identity},
	{"com.microsoft:argument-error", transport.Invalid, false, content},
	{"com.microsoft:argument-out-of-range", transport.Invalid, false, content},
	{"com.microsoft:device-container-throttled", transport.Throttled, true, moment},
	{"com.microsoft:quota-exceeded", transport.Quota, true, moment},
	{"com.microsoft:iot-hub-suspended", transport.Forbidden, false, identity},
	{"com.microsoft:entity-disabled", transport.Forbidden, false, identity},
	{"proton:io", transport.Network, true, moment},
	{"com.example:never-heard-of", transport.Unknown, false, content},
	{"", transport.Unknown, false, content},
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

// The same conditions where they can appear: refusing a message, ending a link, a session, a
// connection.
func TestConditionsBecomeErrors(t *testing.T) {
	for _, c := range conditions {
		said := &amqp.Error{Condition: amqp.ErrCond(c.condition), Description: "text"}
		e, what := verdict(&amqp.StateRejected{Error: said})
		require.Equal(t, c.about, what, c.condition)
		require.Equal(t, c.kind, e.Kind)
		require.Equal(t, transport.Operation, e.Scope)
		require.ErrorContains(t, e, c.condition)

		end := c.kind
		if end == transport.Unknown {
			end = transport.Network
		}
		for what, err := range map[string]error{
			"link": &amqp.LinkError{RemoteErr: said}, "session": &amqp.SessionError{RemoteErr: said},
			"connection": &amqp.ConnError{RemoteErr: said},
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
			if c.kind != transport.Unknown {
				require.Equal(t, c.about, aboutOf(e))
			} else {
				require.Equal(t, moment, aboutOf(e), "no reason, no blame")
			}
		}
	}
	require.Nil(t, ended(&amqp.ConnError{}), "then the network knows")
	require.Equal(t, "link", ended(&amqp.LinkError{}).What)
	require.Nil(t, ended(io.EOF))
}

func TestOtherOutcomes(t *testing.T) {
	for _, c := range []struct {
		state amqp.DeliveryState
		kind  transport.Kind
		about about
	}{
		{&amqp.StateRejected{}, transport.Unknown, content}, // without a reason: not again
		{&amqp.StateReceived{}, transport.Unavailable, moment},
		{&amqp.StateReleased{}, transport.Unavailable, moment},
		{&amqp.StateModified{}, transport.Unavailable, moment},
		{&amqp.StateModified{UndeliverableHere: true}, transport.Forbidden, content},
	} {
		e, what := verdict(c.state)
		require.Equal(t, c.kind, e.Kind)
		require.Equal(t, c.about, what)
	}
	for _, taken := range []amqp.DeliveryState{nil, &amqp.StateAccepted{}} {
		e, _ := verdict(taken)
		require.Nil(t, e)
	}
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
		{fmt.Errorf("read: %w", broken("flow.handle", "is missing")), transport.Protocol},
		{&transport.Error{Kind: transport.Throttled}, transport.Throttled},
	} {
		require.Equal(t, c.kind, lossOf(c.cause).Kind, "%v", c.cause)
	}
}

func TestTextsOfPeersAreBounded(t *testing.T) {
	long := strings.Repeat("é", 5000)
	c := conditionOf("link", &amqp.Error{Condition: amqp.ErrCond(long), Description: long})
	require.Less(t, len(c.Error()), 3*scrub.MaxPeer)
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
