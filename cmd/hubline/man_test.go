package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// requests are those that the pages use; a line that begins in another way is text.
var requests = regexp.MustCompile(`^\.(TH|SH|PP|TP|nf|fi|B|BR)( |$)`)

// Each command and topic has a page with its flags, and no line of it is a request by accident.
func TestMan(t *testing.T) {
	s := newShell(t, nil)
	folder := t.TempDir()
	require.Equal(t, exitOK, s.run("man", folder), s.log.String())
	root := (&tool{}).root()
	for _, c := range allCommands(root) {
		name, section := manName(c)
		text, err := os.ReadFile(filepath.Join(folder, "man"+section, name+"."+section))
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
				require.Regexp(t, requests, line, name)
			}
			require.NotRegexp(t, `^\s*$`, line, "man takes an empty line for a paragraph: %s", name)
		}
	}
	page, err := os.ReadFile(filepath.Join(folder, "man1", "hubline-send.1"))
	require.NoError(t, err)
	require.Contains(t, string(page), ".TP\n.B \\-outbox \\fIDIR\\fP\n")
	require.Contains(t, string(page), "\n.SH NAME\nhubline\\-send \\- send messages, also from pipes\n")
	require.Contains(t, string(page), "(default 1m0s)")
	require.FileExists(t, filepath.Join(folder, "man7", "hubline-exit-status.7"))
	require.FileExists(t, filepath.Join(folder, "man1", "hubline-twin-get.1"))
	require.Equal(t, exitUsage, s.run("man"))
	require.Equal(t, exitUsage, s.run("man", filepath.Join(s.file("x", ""), "y")))
	if groff, err := exec.LookPath("groff"); err == nil {
		out, err := exec.CommandContext(soon(t), groff, "-man", "-ww", "-z", filepath.Join(folder, "man1",
			"hubline-send.1")).CombinedOutput()
		require.NoError(t, err)
		require.Empty(t, string(out))
	}
}

func TestTextThatLooksLikeARequest(t *testing.T) {
	var b strings.Builder
	manText(&b, ".so /etc/passwd\n\n  .rows[] | 'x'\n'quoted' a\\b\n")
	require.Equal(t, ".PP\n\\&.so /etc/passwd\n.PP\n.nf\n  .rows[] | 'x'\n.fi\n.PP\n\\&'quoted' a\\eb\n", b.String())
}
