package main

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

func TestTwinGet(t *testing.T) {
	for _, name := range []string{"mqtt", "amqp"} {
		s := newShell(t, nil)
		_, err := s.hub.PatchDesired("pump-1", `{"interval":60}`)
		require.NoError(t, err)
		require.Equal(t, exitOK, s.run("twin", "get", "-transport", name), s.log.String())
		var twin struct{ Desired, Reported map[string]any }
		require.NoError(t, json.Unmarshal([]byte(s.out.String()), &twin))
		require.Equal(t, 60.0, twin.Desired["interval"])
	}
}

func TestTwinPatch(t *testing.T) {
	s := newShell(t, nil)
	require.Equal(t, exitOK, s.run("twin", "patch", `{"firmware":"1.2"}`), s.log.String())
	require.Equal(t, "version 2\n", s.out.String())
	s.in = strings.NewReader(`{"site":"roof"}`)
	require.Equal(t, exitOK, s.run("twin", "patch", "-if-version", "2"), s.log.String())
	require.Equal(t, exitFailed, s.run("twin", "patch", "-if-version", "2", `{"site":"cellar"}`), "the version is 3")
	twin, err := s.hub.Twin("pump-1")
	require.NoError(t, err)
	require.JSONEq(t, `{"firmware":"1.2","site":"roof"}`, string(twin.Reported))
	for text, why := range map[string]string{
		"":                             "there is no text",
		"[1]":                          "not a JSON object; write",
		"null":                         "not a JSON object; write",
		"1":                            "not a JSON object; write",
		"{":                            "line 1, column 1: unexpected end of JSON input",
		"{\n \"a\": 1,\n \"b\": no\n}": "line 3, column 8: invalid character 'o' in literal null (expecting 'u')",
		`{"a":1} x`:                    "line 1, column 9: invalid character 'x' after top-level value",
	} {
		s.in, s.log = strings.NewReader(text), buffer{}
		require.Equal(t, exitUsage, s.run("twin", "patch"), text)
		require.Contains(t, s.log.String(), why)
	}
}

func TestTwinWatch(t *testing.T) {
	s := newShell(t, nil)
	_, err := s.hub.PatchDesired("pump-1", `{"interval":60}`)
	require.NoError(t, err)
	done := make(chan int, 1)
	go func() { done <- s.run("twin", "watch", "-count", "2") }() // ends after the second line
	require.Eventually(t, func() bool { return strings.Contains(s.out.String(), "\n") }, 30*time.Second,
		5*time.Millisecond)
	_, err = s.hub.PatchDesired("pump-1", `{"interval":30}`)
	require.NoError(t, err)
	require.Equal(t, exitOK, <-done, s.log.String())
	lines := strings.Split(s.out.String(), "\n")
	require.Contains(t, lines[0], `"full":true,"desired":{"$version":2,"interval":60}`)
	require.Contains(t, lines[1], `"full":false,"desired":{"$version":3,"interval":30}`)
}

// With -since the first line is of a later version; a terminal gets columns.
func TestTwinWatchSince(t *testing.T) {
	s := newShell(t, nil)
	s.tool = &tool{outTerminal: true}
	_, err := s.hub.PatchDesired("pump-1", `{"interval":60}`)
	require.NoError(t, err)
	done := make(chan int, 1)
	go func() { done <- s.run("twin", "watch", "-count", "1", "-since", "2") }()
	require.NoError(t, s.log.wait(soon(t), "connected"))
	_, err = s.hub.PatchDesired("pump-1", `{"interval":30}`)
	require.NoError(t, err)
	require.Equal(t, exitOK, <-done, s.log.String())
	require.Regexp(t, `^\S+\d\d:\d\d:\d\d\S+  \S+version 3\S+  \S+(change|all)\S+  \{"\$version":3,"interval":30\}\n$`,
		s.out.String())
}

// serve runs hubline method serve while f calls methods.
func serve(t *testing.T, args []string, f func(s *shell, call func(name, body string) (int, string))) *shell {
	s := newShell(t, nil)
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() { done <- s.runIn(ctx, append([]string{"method", "serve"}, args...)...) }() // ends with interrupt
	require.Eventually(t, func() bool { return strings.Contains(s.log.String(), "connected") }, 30*time.Second,
		5*time.Millisecond)
	f(s, func(name, body string) (int, string) {
		answer, err := s.hub.CallMethod(soon(t), "pump-1", hubdata.MethodCall{Name: name, Payload: []byte(body)})
		require.NoError(t, err, "%s: %s", name, s.log.String())
		return answer.Status, string(answer.Payload)
	})
	interrupt()
	require.Equal(t, exitOK, <-done, s.log.String())
	return s
}

func TestMethodServe(t *testing.T) {
	s := serve(t, []string{"reboot", "-status", "202", "-answer", `{"in":5}`},
		func(_ *shell, call func(name, body string) (int, string)) {
			status, answer := call("reboot", `{"hard":true}`)
			require.Equal(t, 202, status)
			require.JSONEq(t, `{"in":5}`, answer)
			status, _ = call("fly", `{}`)
			require.Equal(t, 404, status, "not served")
		})
	require.Contains(t, s.out.String(), `"method":"reboot","body":{"hard":true},"status":202`)
	require.Equal(t, exitUsage, newShell(t, nil).run("method", "serve", "-answer", "not JSON"))
}

func TestMethodServeByAProgram(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the program of this test is a shell script")
	}
	script := t.TempDir() + "/answer"
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"+`case "$1" in
echo) cat ;;
fail) exit 3 ;;
text) echo no JSON ;;
quiet) ;;
flood) trap "" PIPE; while :; do echo 1111111111111111111111111111111111111111; done ;;
esac
`), 0o700))
	s := serve(t, []string{"-exec", script}, func(_ *shell, call func(name, body string) (int, string)) {
		for name, want := range map[string]struct {
			status int
			answer string
		}{
			"echo": {200, `{"a":1}`}, "fail": {500, "the program failed"}, "text": {500, "something else than JSON"},
			"quiet": {200, "{}"}, "flood": {500, "the program failed"},
		} {
			status, answer := call(name, `{"a":1}`)
			require.Equal(t, want.status, status, name)
			require.Contains(t, answer, want.answer, name)
		}
	})
	require.Contains(t, s.log.String(), "-exec: flood: the program printed more than 131072 bytes")
	require.Contains(t, s.log.String(), "-exec: fail: exit status 3")
}

// A program that runs when the command ends is ended, too, and the log says why.
func TestMethodServeEndsTheProgram(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the program of this test is a shell script")
	}
	script := t.TempDir() + "/answer"
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho started >&2\nexec sleep 60\n"), 0o700))
	s := newShell(t, nil)
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() { done <- s.runIn(ctx, "method", "serve", "-exec", script) }() // ends with interrupt
	called := make(chan error, 1)
	go func() { // ends with the connection, at the latest
		_, err := s.hub.CallMethod(soon(t), "pump-1", hubdata.MethodCall{Name: "x", ConnectTimeout: 30 * time.Second})
		called <- err
	}()
	require.NoError(t, s.log.wait(soon(t), "started"), s.log.String())
	interrupt()
	<-done // the status is not 0 if the call came before the end of Open
	require.Contains(t, s.log.String(), "-exec: x: the program was ended, because the time of the call or the command was")
	require.NoError(t, s.hub.Close())
	<-called
}
