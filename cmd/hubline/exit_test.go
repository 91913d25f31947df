package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

// The page says the same about the exit statuses as the help does.
func TestThePageHasTheExitStatuses(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, s := range statuses {
		require.Contains(t, strings.ReplaceAll(string(text), "`", ""), fmt.Sprintf("| %d | %s |\n", s.status, s.means))
	}
}

// A proxy's refusal says nothing about the identity, so it has the status of a service that was not
// reached.
func TestARefusalOfAProxyIsNotTheServices(t *testing.T) {
	for status, kind := range map[int]transport.Kind{407: transport.Unauthorized, 403: transport.Forbidden} {
		of := func(service string, cause error) error {
			answer := &transport.StatusError{Service: service, Status: status}
			return &transport.Error{Kind: kind, Op: transport.OpDial, Err: errors.Join(answer, cause)}
		}
		proxys := of("proxy", transport.ErrProxy)
		require.Equal(t, exitNetwork, statusOf(proxys))
		require.Equal(t, exitRefused, statusOf(of("hub", nil)))
		require.Contains(t, describe(proxys), "the proxy ")
		require.NotContains(t, describe(proxys), "check key")
		require.NotContains(t, describe(proxys), "on the hub")
	}
}

// MQTT 3.1.1 has one answer for a restart, throttling and a quota.
func TestAnAnswerWithSeveralMeaningsNamesThemAll(t *testing.T) {
	for code, quota := range map[byte]bool{3: true, 5: false} {
		refused := &mqtt.ConnackError{Code: code}
		text := describe(&transport.Error{Kind: refused.Kind(), Op: transport.OpDial, Err: refused})
		require.Equal(t, quota, strings.Contains(text, "or a quota is used up"), text)
	}
}

// The sentence about a used-up quota is about the hub's.
func TestAFullDiskIsNotTheHubsQuota(t *testing.T) {
	full := &transport.Error{Kind: transport.Quota, Op: transport.OpSend, Err: fmt.Errorf("outbox: the disk is full: %w",
		&os.PathError{Op: "write", Path: "q/1.messages", Err: syscall.ENOSPC})}
	require.Equal(t, full.Error(), describe(full))
}

// Both may be a wrong port, which only further attempts tell apart.
func TestAFailureBelowTheIdentityPointsToDoctor(t *testing.T) {
	for _, kind := range []transport.Kind{transport.Network, transport.Timeout, transport.Protocol} {
		require.Contains(t, describe(&transport.Error{Kind: kind, Op: transport.OpDial}), "hubline doctor", kind)
	}
	require.NotContains(t, describe(&transport.Error{Kind: transport.Unauthorized, Op: transport.OpDial}), "doctor")
	unknown := &transport.Error{Kind: transport.Untrusted, Op: transport.OpDial, Err: x509.UnknownAuthorityError{}}
	require.Contains(t, describe(unknown), "-ca FILE")
}
