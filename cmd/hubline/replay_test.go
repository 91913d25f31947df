package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// recording has messages as testhub, listen -json and people write them.
const recording = `{"n":0,"device":"pump-1","messageId":"a","body":"one","received":"2026-11-28T07:00:00Z",` +
	`"properties":{"zone":"3","unit":"C"},"contentType":"application/json","system":{"$.mid":"a"}}

{"device":"pump-2","messageId":"b","bodyBase64":"/w==","received":"2026-11-28T07:00:10Z"}
{"device":"pump-1","body":{"celsius":21.5},"time":"2026-11-28T07:01:00Z"}
{"device":"pump-1","body":"late","time":"2026-11-28T07:00:30Z","properties":{"iothub-enqueuedtime":"x"}}
{"device":"pump-1","body":null,"time":"2026-11-28T07:01:00Z"}
`

func TestReplayKeepsThePauses(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := newShell(t, nil)
		begin := time.Now()
		require.Equal(t, exitOK, s.run("replay", "-speed", "10", s.file("day.jsonl", recording)), s.log.String())
		require.Equal(t, []string{"one", "\xff", `{"celsius":21.5}`, "late", "null"}, s.bodies())
		require.Contains(t, s.log.String(), "5 acknowledged")
		var at []time.Duration
		for _, m := range s.hub.Messages() {
			at = append(at, m.Received.Sub(begin).Round(100*time.Millisecond))
		}
		require.Equal(t, []time.Duration{0, time.Second, 6 * time.Second, 6 * time.Second, 6 * time.Second}, at)
		first, last := s.hub.Messages()[0], s.hub.Messages()[3]
		require.Equal(t, []hubdata.Property{{Name: "unit", Value: "C"}, {Name: "zone", Value: "3"}}, first.Properties)
		require.NotEqual(t, "a", first.MessageID, "consumers have seen it")
		require.Empty(t, last.Properties)
	})
}

func TestReplayOfOneDeviceWithItsIDs(t *testing.T) {
	s := newShell(t, nil)
	s.in = strings.NewReader(recording)
	require.Equal(t, exitOK, s.run("replay", "-speed", "0", "-device", "pump-2", "-keep-ids", "-"), s.log.String())
	require.Equal(t, []string{"\xff"}, s.bodies())
	require.Equal(t, "b", s.hub.Messages()[0].MessageID)
}

// Nothing is sent of a file with a wrong line.
func TestReplayChecksTheFileFirst(t *testing.T) {
	s := newShell(t, nil)
	for text, want := range map[string]string{
		recording + "{}":                  "line 7 is no message: there is no body",
		recording + "hello":               "line 7 is no message: invalid character 'h'",
		`{"body":"sta","bytes":300000}`:   "line 1 is no message: its body is cut",
		`{"body":"x","time":"yesterday"}`: "line 1 is no message",
		"\n":                              "has no message to send",
		`{"base64":"?"}`:                  "line 1 is no message: illegal base64",
		strings.Repeat("x", maxRecorded):  "line 1 has more than",
	} {
		s.log = buffer{}
		require.Equal(t, exitUsage, s.run("replay", s.file("day.jsonl", text)))
		require.Contains(t, s.log.String(), want)
	}
	require.Equal(t, exitUsage, s.run("replay", "-speed", "-1", "x"))
	require.Equal(t, exitUsage, s.run("replay", "/nowhere/at/all"))
	require.Empty(t, s.bodies())
}
