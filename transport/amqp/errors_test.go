package amqp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
)

// conditions are the conditions of hubs and related services, with their retry and blame.
var conditions = []struct {
	condition string
	kind      transport.Kind
	retry     bool
	blame     amqpclient.Blame // when the hub rejects a message
}{
	{"amqp:internal-error", transport.Unavailable, true, amqpclient.BlameNone},
	{"amqp:not-found", transport.NotFound, false, amqpclient.BlameDevice},
	{"amqp:unauthorized-access", transport.Unauthorized, false, amqpclient.BlameDevice},
	{"amqp:decode-error", transport.Invalid, false, amqpclient.BlameMessage},
	{"amqp:resource-limit-exceeded", transport.Quota, true, amqpclient.BlameNone},
	{"amqp:not-allowed", transport.Forbidden, false, amqpclient.BlameRequest},
	{"amqp:invalid-field", transport.Invalid, false, amqpclient.BlameMessage},
	{"amqp:not-implemented", transport.Unsupported, false, amqpclient.BlameRequest},
	{"amqp:resource-locked", transport.Unavailable, true, amqpclient.BlameNone},
	{"amqp:precondition-failed", transport.Conflict, false, amqpclient.BlameRequest},
	{"amqp:resource-deleted", transport.NotFound, false, amqpclient.BlameDevice},
	{"amqp:illegal-state", transport.Protocol, false, amqpclient.BlameRequest},
	{"amqp:frame-size-too-small", transport.Protocol, false, amqpclient.BlameRequest},
	{"amqp:connection:forced", transport.Unavailable, true, amqpclient.BlameNone},
	{"amqp:connection:framing-error", transport.Network, true, amqpclient.BlameNone},
	{"amqp:connection:redirect", transport.Unavailable, true, amqpclient.BlameNone},
	{"amqp:session:window-violation", transport.Network, true, amqpclient.BlameNone},
	{"amqp:session:errant-link", transport.Network, true, amqpclient.BlameNone},
	{"amqp:session:handle-in-use", transport.Network, true, amqpclient.BlameNone},
	{"amqp:session:unattached-handle", transport.Network, true, amqpclient.BlameNone},
	{"amqp:link:detach-forced", transport.Unavailable, true, amqpclient.BlameNone},
	{"amqp:link:transfer-limit-exceeded", transport.Unavailable, true, amqpclient.BlameNone},
	{"amqp:link:message-size-exceeded", transport.TooLarge, false, amqpclient.BlameMessage},
	{"amqp:link:redirect", transport.Unavailable, true, amqpclient.BlameNone},
	{"amqp:link:stolen", transport.Unavailable, true, amqpclient.BlameNone},
	{"amqp:transaction:unknown-id", transport.Unavailable, true, amqpclient.BlameNone},
	{"amqp:transaction:rollback", transport.Unavailable, true, amqpclient.BlameNone},
	{"amqp:transaction:timeout", transport.Timeout, true, amqpclient.BlameNone},
	{"com.microsoft:timeout", transport.Timeout, true, amqpclient.BlameNone},
	{"com.microsoft:server-busy", transport.Unavailable, true, amqpclient.BlameNone},
	{"com.microsoft:operation-cancelled", transport.Unavailable, true, amqpclient.BlameNone},
	{"com.microsoft:message-lock-lost", transport.Conflict, false, amqpclient.BlameRequest},
	{"com.microsoft:session-cannot-be-locked", transport.Conflict, false, amqpclient.BlameRequest},
	{"com.microsoft:link-creation-conflict", transport.Unavailable, true, amqpclient.BlameNone},
	{"com.microsoft:device-already-exists", transport.Conflict, false, amqpclient.BlameRequest},
	{"com.microsoft:precondition-failed", transport.Conflict, false, amqpclient.BlameRequest},
	{"com.microsoft:iot-hub-not-found-error", transport.NotFound, false, amqpclient.BlameDevice},
	{"com.microsoft:argument-error", transport.Invalid, false, amqpclient.BlameMessage},
	{"com.microsoft:argument-out-of-range", transport.Invalid, false, amqpclient.BlameMessage},
	{"com.microsoft:device-container-throttled", transport.Throttled, true, amqpclient.BlameNone},
	{"com.microsoft:quota-exceeded", transport.Quota, true, amqpclient.BlameNone},
	{"com.microsoft:iot-hub-suspended", transport.Forbidden, false, amqpclient.BlameDevice},
	{"com.microsoft:entity-disabled", transport.Forbidden, false, amqpclient.BlameDevice},
	{"proton:io", transport.Network, true, amqpclient.BlameNone},
	{"com.example:never-heard-of", transport.Unknown, false, amqpclient.BlameMessage},
	{"", transport.Unknown, false, amqpclient.BlameMessage},
}

func TestEachConditionHasItsKind(t *testing.T) {
	listed := 0
	for _, c := range conditions {
		require.Equal(t, c.kind, amqpclient.Conditions[c.condition], c.condition)
		require.Equal(t, c.retry, errfilter.OfKind(c.kind).Retry, c.condition)
		if c.kind != transport.Unknown {
			listed++
		}
	}
	require.Len(t, amqpclient.Conditions, listed, "each row is looked at")
}

// Each condition in a rejected message, and at the end of a link, a session or a connection.
func TestConditionsBecomeErrors(t *testing.T) {
	for _, c := range conditions {
		said := &wire.Error{Condition: wire.Symbol(c.condition), Description: "text"}
		e, what := verdict(&wire.Rejected{Error: said})
		require.Equal(t, c.blame, what, c.condition)
		require.Equal(t, c.kind, e.Kind)
		require.Equal(t, transport.ScopeOperation, e.Scope)
		require.ErrorContains(t, e, c.condition)

		end := c.kind
		if end == transport.Unknown {
			end = transport.Network
		}
		for _, what := range []string{"link", "session", "connection"} {
			why := amqpclient.ConditionOf(what, said)
			require.Equal(t, &ConditionError{What: what, Condition: c.condition, Description: "text"}, why)
			e := lossOf(why)
			require.Equal(t, end, e.Kind)
			require.Equal(t, transport.ScopeConnection, e.Scope)
			require.Equal(t, transport.OpRun, e.Op)
			found, ok := errors.AsType[*ConditionError](error(e))
			require.True(t, ok)
			require.Same(t, why, found)
			require.Equal(t, end, protocol.Error(why).Kind, "the same in a dial")
			if c.kind != transport.Unknown {
				require.Equal(t, c.blame, blameOf(e))
			} else {
				require.Equal(t, amqpclient.BlameNone, blameOf(e), "no reason, no blame")
			}
		}
	}
}

func TestKindsOfOutcomes(t *testing.T) {
	for _, c := range []struct {
		state wire.DeliveryState
		kind  transport.Kind
		blame amqpclient.Blame
	}{
		{&wire.Rejected{}, transport.Unknown, amqpclient.BlameMessage}, // without a reason: not retried
		{nil, transport.Unavailable, amqpclient.BlameNone},
		{&wire.Received{}, transport.Unavailable, amqpclient.BlameNone},
		{&wire.Released{}, transport.Unavailable, amqpclient.BlameNone},
		{&wire.Modified{}, transport.Unavailable, amqpclient.BlameNone},
		{&wire.Modified{UndeliverableHere: true}, transport.Forbidden, amqpclient.BlameMessage},
	} {
		e, what := verdict(c.state)
		require.Equal(t, c.kind, e.Kind)
		require.Equal(t, c.blame, what)
		_, partly := c.state.(*wire.Received)
		require.Equal(t, c.state == nil || partly, errors.Is(e, transport.ErrOutcomeUnknown), "%T", c.state)
	}
	e, _ := verdict(&wire.Accepted{})
	require.Nil(t, e)
}

func TestLosses(t *testing.T) {
	for _, c := range []struct {
		cause error
		kind  transport.Kind
	}{
		{amqpclient.ErrHubClosed, transport.Network},
		{io.EOF, transport.Network},
		{os.ErrDeadlineExceeded, transport.Timeout},
		{&amqpclient.WriteError{Err: os.ErrDeadlineExceeded}, transport.Timeout},
		{errNoAnswer, transport.Timeout},
		{context.DeadlineExceeded, transport.Timeout},
		{fmt.Errorf("read: %w", new(amqpclient.Violation)), transport.Protocol},
		{&transport.Error{Kind: transport.Throttled}, transport.Throttled},
	} {
		require.Equal(t, c.kind, lossOf(c.cause).Kind, "%v", c.cause)
	}
}

func TestAnotherConnectionOfTheDeviceIsNamed(t *testing.T) {
	for condition, named := range map[string]bool{"com.microsoft:link-creation-conflict": true, "amqp:link:stolen": true,
		"amqp:link:detach-forced": false} {
		err := lossOf(&ConditionError{What: "link", Condition: condition})
		require.Equal(t, named, errors.Is(err, transport.ErrTakenOver), condition)
	}
}
