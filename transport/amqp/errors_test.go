package amqp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/amqpconn"
	"github.com/hubline-iot/hubline/internal/amqpscreen"
	"github.com/hubline-iot/hubline/internal/amqpscreen/screentest"
	"github.com/hubline-iot/hubline/transport"
)

// conditions are the conditions of hubs and related services, with their retry and blame.
var conditions = []struct {
	condition string
	kind      transport.Kind
	retry     bool
	blame     blame // when the hub rejects a message
}{
	{"amqp:internal-error", transport.Unavailable, true, blameNone},
	{"amqp:not-found", transport.NotFound, false, blameDevice},
	{"amqp:unauthorized-access", transport.Unauthorized, false, blameDevice},
	{"amqp:decode-error", transport.Invalid, false, blameMessage},
	{"amqp:resource-limit-exceeded", transport.Quota, true, blameNone},
	{"amqp:not-allowed", transport.Forbidden, false, blameRequest},
	{"amqp:invalid-field", transport.Invalid, false, blameMessage},
	{"amqp:not-implemented", transport.Unsupported, false, blameRequest},
	{"amqp:resource-locked", transport.Unavailable, true, blameNone},
	{"amqp:precondition-failed", transport.Conflict, false, blameRequest},
	{"amqp:resource-deleted", transport.NotFound, false, blameDevice},
	{"amqp:illegal-state", transport.Protocol, false, blameRequest},
	{"amqp:frame-size-too-small", transport.Protocol, false, blameRequest},
	{"amqp:connection:forced", transport.Unavailable, true, blameNone},
	{"amqp:connection:framing-error", transport.Network, true, blameNone},
	{"amqp:connection:redirect", transport.Unavailable, true, blameNone},
	{"amqp:session:window-violation", transport.Network, true, blameNone},
	{"amqp:session:errant-link", transport.Network, true, blameNone},
	{"amqp:session:handle-in-use", transport.Network, true, blameNone},
	{"amqp:session:unattached-handle", transport.Network, true, blameNone},
	{"amqp:link:detach-forced", transport.Unavailable, true, blameNone},
	{"amqp:link:transfer-limit-exceeded", transport.Unavailable, true, blameNone},
	{"amqp:link:message-size-exceeded", transport.TooLarge, false, blameMessage},
	{"amqp:link:redirect", transport.Unavailable, true, blameNone},
	{"amqp:link:stolen", transport.Unavailable, true, blameNone},
	{"amqp:transaction:unknown-id", transport.Unavailable, true, blameNone},
	{"amqp:transaction:rollback", transport.Unavailable, true, blameNone},
	{"amqp:transaction:timeout", transport.Timeout, true, blameNone},
	{"com.microsoft:timeout", transport.Timeout, true, blameNone},
	{"com.microsoft:server-busy", transport.Unavailable, true, blameNone},
	{"com.microsoft:operation-cancelled", transport.Unavailable, true, blameNone},
	{"com.microsoft:message-lock-lost", transport.Conflict, false, blameRequest},
	{"com.microsoft:session-cannot-be-locked", transport.Conflict, false, blameRequest},
	{"com.microsoft:link-creation-conflict", transport.Unavailable, true, blameNone},
	{"com.microsoft:device-already-exists", transport.Conflict, false, blameRequest},
	{"com.microsoft:precondition-failed", transport.Conflict, false, blameRequest},
	{"com.microsoft:iot-hub-not-found-error", transport.NotFound, false, blameDevice},
	{"com.microsoft:argument-error", transport.Invalid, false, blameMessage},
	{"com.microsoft:argument-out-of-range", transport.Invalid, false, blameMessage},
	{"com.microsoft:device-container-throttled", transport.Throttled, true, blameNone},
	{"com.microsoft:quota-exceeded", transport.Quota, true, blameNone},
	{"com.microsoft:iot-hub-suspended", transport.Forbidden, false, blameDevice},
	{"com.microsoft:entity-disabled", transport.Forbidden, false, blameDevice},
	{"proton:io", transport.Network, true, blameNone},
	{"com.example:never-heard-of", transport.Unknown, false, blameMessage},
	{"", transport.Unknown, false, blameMessage},
}

func TestEachConditionHasItsKind(t *testing.T) {
	listed := 0
	for _, c := range conditions {
		require.Equal(t, c.kind, amqpconn.Conditions[c.condition], c.condition)
		require.Equal(t, c.retry, errfilter.OfKind(c.kind).Retry, c.condition)
		if c.kind != transport.Unknown {
			listed++
		}
	}
	require.Len(t, amqpconn.Conditions, listed, "each row is looked at")
}

// Each condition in a rejected message, and at the end of a link, a session or a connection.
func TestConditionsBecomeErrors(t *testing.T) {
	for _, c := range conditions {
		said := &amqp.Error{Condition: amqp.ErrCond(c.condition), Description: "text"}
		e, what := verdict(&amqp.StateRejected{Error: said})
		require.Equal(t, c.blame, what, c.condition)
		require.Equal(t, c.kind, e.Kind)
		require.Equal(t, transport.ScopeOperation, e.Scope)
		require.ErrorContains(t, e, c.condition)

		end := c.kind
		if end == transport.Unknown {
			end = transport.Network
		}
		for what, err := range map[string]error{
			"link": &amqp.LinkError{RemoteErr: said}, "session": &amqp.SessionError{RemoteErr: said},
			"connection": &amqp.ConnError{RemoteErr: said},
		} {
			why := amqpconn.Ended(err)
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
				require.Equal(t, blameNone, blameOf(e), "no reason, no blame")
			}
		}
	}
	require.Nil(t, amqpconn.Ended(&amqp.ConnError{}), "then the network knows")
	require.Equal(t, "link", amqpconn.Ended(&amqp.LinkError{}).What)
	require.Nil(t, amqpconn.Ended(io.EOF))
}

func TestKindsOfOutcomes(t *testing.T) {
	for _, c := range []struct {
		state amqp.DeliveryState
		kind  transport.Kind
		blame blame
	}{
		{&amqp.StateRejected{}, transport.Unknown, blameMessage}, // without a reason: not retried
		{&amqp.StateReceived{}, transport.Unavailable, blameNone},
		{&amqp.StateReleased{}, transport.Unavailable, blameNone},
		{&amqp.StateModified{}, transport.Unavailable, blameNone},
		{&amqp.StateModified{UndeliverableHere: true}, transport.Forbidden, blameMessage},
	} {
		e, what := verdict(c.state)
		require.Equal(t, c.kind, e.Kind)
		require.Equal(t, c.blame, what)
	}
	for _, taken := range []amqp.DeliveryState{nil, &amqp.StateAccepted{}} {
		e, _ := verdict(taken)
		require.Nil(t, e)
	}
}

// The end of a link by the library is reported with its reason, not as the hub's.
func TestTheErrorOfALinkThatTheLibraryEnds(t *testing.T) {
	p := newFuzzPeer(func() uint32 { return 2 }, 0)
	defer p.Close()
	c, err := amqp.NewConn(t.Context(), p, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	require.NoError(t, err)
	s, err := c.NewSession(t.Context(), nil)
	require.NoError(t, err)
	link, err := s.NewReceiver(t.Context(), "in", nil)
	require.NoError(t, err)
	p.deliver(screentest.Undecoded()["char"])
	_, err = link.Receive(t.Context(), nil)
	require.True(t, amqpconn.IsLink(err), "%v", err)
	err = new(amqpconn.Conn).Explain(err)
	require.ErrorContains(t, err, "this side ended the link: amqp:internal-error: ")
	require.Equal(t, transport.Protocol, lossOf(err).Kind)
	require.ErrorIs(t, lossOf(err), transport.ErrViolation)
}

func TestLosses(t *testing.T) {
	for _, c := range []struct {
		cause error
		kind  transport.Kind
	}{
		{amqpscreen.ErrHubClosed, transport.Network},
		{io.EOF, transport.Network},
		{os.ErrDeadlineExceeded, transport.Timeout},
		{&amqpscreen.WriteError{Err: os.ErrDeadlineExceeded}, transport.Timeout},
		{errNoAnswer, transport.Timeout},
		{context.DeadlineExceeded, transport.Timeout},
		{fmt.Errorf("read: %w", amqpscreen.EndedByLibrary("link", "x")), transport.Protocol},
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
