package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

const page = "../../docs/hubline.md"

// transcript is a block of the page: commands after "$ ", and what they print.
var transcript = regexp.MustCompile("(?ms)^<!-- transcript: ([^\n]*) -->\n```console\n(.*?)^```$")

// scenes are the surroundings of the transcripts.
var scenes = map[string]func(s *shell){
	"healthy": func(s *shell) {
		require.NoError(s.t, s.hub.SendC2D("pump-1", hubdata.C2D{Body: []byte("open the valve")}))
		_, err := s.hub.PatchDesired("pump-1", `{"interval":60}`)
		require.NoError(s.t, err)
	},
	"wrong key": func(s *shell) { require.NoError(s.t, s.hub.SetKeys("pump-1", otherKey, otherKey)) },
	"portal": func(s *shell) {
		require.NoError(s.t, s.hub.PresentName("login.hotel.example"))
		open := s.dial
		s.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if !strings.HasSuffix(address, ":80") {
				return open(ctx, network, address)
			}
			near, far := net.Pipe()
			go func() { // ends with the connection
				_, _ = far.Read(make([]byte, 1024))
				_, _ = io.WriteString(far, "HTTP/1.1 302 Found\r\nLocation: http://login.hotel.example/\r\n\r\n")
				_ = far.Close()
			}()
			return near, nil
		}
	},
	"1970": func(s *shell) {
		s.change = func(to *target.Target) {
			start := time.Now()
			to.Creds.Now = func() time.Time { return time.Unix(40, 0).Add(time.Since(start)) }
		}
	},
	"an update": func(s *shell) {
		s.t.Chdir(s.t.TempDir())
		updates, err := testbroker.NewUpdates(nil)
		require.NoError(s.t, err)
		require.NoError(s.t, updates.Publish(toasterUpdate()))
		_, err = updates.Deploy(updatedata.Deployment{WorkflowID: "spring", Update: toaster})
		require.NoError(s.t, err)
		s.hub.LinkUpdates(updates)
		require.NoError(s.t, os.WriteFile("roots.json", updates.RootKeyPackage(), 0o600))
	},
	"no network": func(s *shell) {
		s.dial = func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("network is unreachable")}
		}
		s.tool.lookup = func(_ context.Context, host string) ([]string, error) {
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
	},
}

// The page shows what the commands print, except for figures that differ each time. With
// HUBLINE_WRITE=1 the page is rewritten.
func TestTranscripts(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	n := 0
	written := transcript.ReplaceAllStringFunc(string(text), func(block string) string {
		n++
		m := transcript.FindStringSubmatch(block)
		var now string
		testkit.In2030(t, func(t *testing.T) { // doctor watches a connection for 12 s
			now = play(t, m[1], commandsOf(m[2]))
		})
		if os.Getenv("HUBLINE_WRITE") == "" {
			require.Equal(t, masked(m[2]), masked(now), "scene %q; HUBLINE_WRITE=1 go test -run TestTranscripts", m[1])
			return block
		}
		return strings.Replace(block, m[2], now, 1)
	})
	require.GreaterOrEqual(t, n, 8)
	if written != string(text) {
		require.NoError(t, os.WriteFile(page, []byte(written), 0o644))
	}
}

func commandsOf(block string) (all []string) {
	for line := range strings.SplitSeq(block, "\n") {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, command)
		}
	}
	return all
}

// play runs commands in a scene and returns the transcript.
func play(t *testing.T, scene string, commands []string) string {
	require.Contains(t, scenes, scene)
	s := newShell(t, &testbroker.Options{Seed: 1})
	s.tool = &tool{lookup: func(context.Context, string) ([]string, error) { return []string{"192.0.2.17"}, nil }}
	s.both = true
	scenes[scene](s)
	var b strings.Builder
	for _, command := range commands {
		fmt.Fprintf(&b, "$ %s\n", command)
		command, echo := strings.CutSuffix(command, "; echo $?")
		if before, after, ok := strings.Cut(command, " | "); ok {
			command = after
			words := split(before)
			require.Equal(t, "printf", words[0])
			s.in = strings.NewReader(strings.ReplaceAll(words[1], `\n`, "\n"))
		}
		words := split(command)
		require.Equal(t, "hubline", words[0])
		for i, word := range words {
			if word == "README.md" {
				words[i] = "../../" + word
			}
		}
		s.out = buffer{}
		status := s.run(words[1:]...)
		b.WriteString(s.out.String())
		if echo {
			fmt.Fprintln(&b, status)
		}
	}
	return b.String()
}

// split splits words as a shell does, with single quotation marks alone.
func split(command string) (words []string) {
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

var figures = []struct {
	pattern *regexp.Regexp
	mask    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d( UTC|Z))?`), "DATE"},
	{regexp.MustCompile(`<?\b\d+(\.\d+)?(µs|ms|s| days)\b`), "TIME"},
	{regexp.MustCompile(`(?m)^connected\n`), ""}, // another goroutine prints it
	{regexp.MustCompile(` +`), " "},
	{regexp.MustCompile(` \n`), "\n"},
}

// masked returns a text without what differs each time.
func masked(text string) string {
	for _, f := range figures {
		text = f.pattern.ReplaceAllString(text, f.mask)
	}
	return text
}
