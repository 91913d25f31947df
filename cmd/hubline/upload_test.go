package main

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/fault"
)

// An upload ends with -connect-timeout, however the service fails to answer.
func TestAnUploadWithoutAnAnswerEndsInTime(t *testing.T) {
	for name, spoil := range map[string]func(s *shell){
		"no network": func(s *shell) {
			s.dial = func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("network is unreachable")}
			}
		},
		"packets vanish": func(s *shell) {
			s.dial = func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
		},
		"no handshake": func(s *shell) { s.hub.Inject(fault.Fault{Kind: fault.MuteHandshake, Times: -1}) },
		"no answer": func(s *shell) {
			s.hub.Inject(fault.Fault{Kind: fault.SwallowAnswer, Times: -1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				s := newShell(t, nil)
				spoil(s)
				begin := time.Now()
				status := s.runIn(t.Context(), "upload", "-connect-timeout", "20s", "tool_test.go")
				require.Equal(t, exitNetwork, status, s.log.String())
				require.Equal(t, 20*time.Second, time.Since(begin))
				require.Contains(t, s.log.String(), "no answer from the service within 20s")
			})
		})
	}
}

// -connect-timeout is over with the first answer: an upload takes as long as it needs.
func TestASlowUploadIsNotCut(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newShell(t, nil)
		s.hub.Inject(fault.Fault{Kind: fault.SlowBlob, Delay: 15 * time.Second, Times: -1})
		require.Equal(t, exitOK, s.runIn(t.Context(), "upload", "-connect-timeout", "10s", "tool_test.go"), s.log.String())
	})
}

// Ctrl-C ends commands that wait for their input, of which there is no end here.
func TestCtrlCEndsTheInput(t *testing.T) {
	for _, args := range [][]string{{"send"}, {"twin", "patch"}, {"upload", "-", "-name", "log"}} {
		s := newShell(t, nil)
		ctx, interrupt := context.WithCancel(t.Context())
		in, feed := io.Pipe()
		s.in = in
		fed := make(chan error, 1)
		go func() { // ends when the command has taken the text
			_, err := io.WriteString(feed, "{")
			interrupt()
			fed <- err
		}()
		require.Equal(t, exitFailed, s.runIn(ctx, args...), s.log.String())
		require.Contains(t, s.log.String(), "hubline: interrupted before the ")
		require.NotContains(t, s.log.String(), "the same input would be wrong again")
		require.NoError(t, <-fed)
		require.NoError(t, feed.Close())
		require.Empty(t, s.bodies())
	}
}
