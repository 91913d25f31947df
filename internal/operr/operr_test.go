package operr_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

func TestTheErrorOfAContextIsNotRetryableAndShowsItsCauses(t *testing.T) {
	state := &transport.Error{Kind: transport.Network, Err: errors.New("no route")}
	shutdown := errors.New("shutting down")
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	caused, cancelCause := context.WithCancelCause(context.Background())
	cancelCause(shutdown)
	expired, stop := context.WithTimeout(context.Background(), 0)
	defer stop()

	for name, c := range map[string]struct {
		ctx   context.Context
		state error
		is    []error
		text  string
	}{
		"cancelled": {cancelled, nil, []error{context.Canceled}, "send: cancelled: context canceled"},
		"with a cause": {caused, nil, []error{context.Canceled, shutdown},
			"send: cancelled: context canceled; shutting down"},
		"expired, with a state": {expired, state, []error{context.DeadlineExceeded, state},
			"send: cancelled: context deadline exceeded; network failure: no route"},
		"all": {caused, state, []error{context.Canceled, shutdown, state},
			"send: cancelled: context canceled; shutting down; network failure: no route"},
	} {
		t.Run(name, func(t *testing.T) {
			err := operr.Cancelled(c.ctx, transport.OpSend, transport.ScopeOperation, c.state)
			for _, target := range c.is {
				require.ErrorIs(t, err, target)
			}
			require.ErrorIs(t, err, transport.Cancelled)
			require.NotErrorIs(t, err, transport.Timeout)
			require.False(t, errfilter.Retryable(err))
			require.EqualError(t, err, c.text)
		})
	}
}

func TestNoPlace(t *testing.T) {
	for field, m := range map[string]*transport.Message{"Topic": {Topic: "a", ResponseTopic: "b"},
		"ResponseTopic": {ResponseTopic: "b", Retain: true}, "Retain": {Retain: true}} {
		err := operr.NoPlace(m, "HTTPS", false)
		require.EqualError(t, err, "send: unsupported: message "+field+" has no place over HTTPS to this peer; leave it "+
			"unset, "+
			"or use MQTT with Options.Dialect for a broker")
		require.False(t, errfilter.Retryable(err))
		require.Equal(t, transport.ScopeOperation, err.Scope)
	}
	require.Nil(t, operr.NoPlace(&transport.Message{AtMostOnce: true}, "HTTPS", false))
	require.Nil(t, operr.NoPlace(&transport.Message{ResponseTopic: "a"}, "AMQP", true))
}

func TestNoPlaceOutsideHubs(t *testing.T) {
	all := transport.SystemProperties{To: "x", UserID: "x", Schema: "x", InterfaceID: "x", ConnectionDeviceID: "x",
		ConnectionModuleID: "x", DiagnosticID: "x", DiagnosticContext: "x"}
	m := &transport.Message{Output: "x", System: &all}
	var places []string
	for _, field := range []string{"Output", "System.To", "System.UserID", "System.Schema", "System.InterfaceID",
		"System.ConnectionDeviceID", "System.ConnectionModuleID", "System.DiagnosticID", "System.DiagnosticContext"} {
		err := operr.NoPlaceOutsideHubs(m, "HTTPS", places...)
		require.EqualError(t, err, "send: unsupported: message "+field+" has no place over HTTPS to this peer; leave it "+
			"unset, or use a transport to a hub that has it")
		require.Equal(t, transport.ScopeOperation, err.Scope)
		places = append(places, field)
	}
	require.Nil(t, operr.NoPlaceOutsideHubs(m, "HTTPS", places...))
	empty := &transport.Message{Input: "x", System: new(transport.SystemProperties)}
	require.Nil(t, operr.NoPlaceOutsideHubs(empty, "HTTPS"))
	require.Nil(t, operr.NoPlaceOutsideHubs(&transport.Message{ID: "x"}, "HTTPS"))
	sent := &transport.Message{System: &transport.SystemProperties{To: "x"}}
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = operr.NoPlaceOutsideHubs(sent, "AMQP", "System.To") }))
}

func TestTooLargeNamesSizeAndLimit(t *testing.T) {
	err := operr.TooLarge(70_000, 60_000, 65_536)
	require.ErrorIs(t, err, transport.TooLarge)
	require.EqualError(t, err,
		"send: too large: message of 70000 bytes is over the limit of 65536; split it or upload it as a file")
	require.EqualError(t, operr.TooLarge(70_000, 100, 65_536), "send: too large: message of 70000 bytes, 69900 of "+
		"them in properties, is over the limit of 65536; send fewer or shorter properties")
}
