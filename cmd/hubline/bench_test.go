package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/fault"
)

func TestBenchMeasures(t *testing.T) {
	for _, transport := range []string{"mqtt", "amqp", "http"} {
		s := newShell(t, nil)
		status := s.run("bench", "-messages", "50", "-size", "300", "-window", "8", "-yes", "-json", "-transport", transport)
		require.Equal(t, exitOK, status, s.log.String())
		var r benchResult
		require.NoError(t, json.Unmarshal([]byte(s.out.String()), &r))
		require.Equal(t, []int{50, 0}, []int{r.Acknowledged, r.Failed}, transport)
		require.Len(t, s.bodies(), 50)
		require.Len(t, s.bodies()[0], 300)
		require.True(t, json.Valid([]byte(s.bodies()[0])))
		require.Greater(t, r.Wire.Out, int64(50*300), "with TLS and headers")
		require.Positive(t, r.Rate)
		require.True(t, 0 < r.Latency.Median && r.Latency.Median <= r.Latency.P99 && r.Latency.P99 <= r.Latency.Max)
		require.Zero(t, r.Resent+r.Reconnects)
	}
}

// Refusals for now and a lost connection show, and no message is lost by them.
func TestBenchCountsRetries(t *testing.T) {
	s := newShell(t, nil)
	s.hub.Inject(fault.Fault{Kind: fault.DropBeforePublish, After: 5})
	require.Equal(t, exitOK, s.run("bench", "-messages", "20", "-window", "4", "-yes"), s.log.String())
	require.Regexp(t, `retries\s+[1-9]\d* sent again, 1 reconnects, 0 pauses`, s.out.String())
	require.Contains(t, s.out.String(), "20 of 256 bytes acknowledged")
}

// It costs quota, so a script says that it is meant, and a person is asked.
func TestBenchAsksBeforeItSends(t *testing.T) {
	s := newShell(t, nil)
	require.Equal(t, exitUsage, s.run("bench"))
	require.Contains(t, s.log.String(), "count as 1000 of its daily quota")
	require.Contains(t, s.log.String(), "give -yes")
	for answer, status := range map[string]int{"y\n": exitOK, "no\n": exitFailed, "\n": exitFailed} {
		s := newShell(t, nil)
		s.tool, s.in = &tool{inTerminal: true, logTerminal: true}, strings.NewReader(answer)
		require.Equal(t, status, s.run("bench", "-messages", "2", "-size", "5000"), answer)
		require.Contains(t, s.log.String(), "count as 4 of its daily quota")
		require.Len(t, s.bodies(), map[int]int{exitOK: 2}[status], answer)
	}
	for _, args := range [][]string{{"-messages", "0"}, {"-size", "3"}, {"-window", "0"}} {
		s := newShell(t, nil)
		require.Equal(t, exitUsage, s.run(append([]string{"bench", "-yes"}, args...)...))
		require.Contains(t, s.log.String(), args[0]+": ")
	}
}

// The largest window of the largest bodies is within the limits of the client's queue.
func TestBenchTakesItsHighestLimits(t *testing.T) {
	s := newShell(t, nil)
	status := s.run("bench", "-yes", "-messages", "1", "-window", "4096", "-size", "262144")
	require.NotEqual(t, exitUsage, status, s.log.String())
	require.NotContains(t, s.log.String(), "MaxBytes")
}
