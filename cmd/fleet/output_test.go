package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A hook is a writer that calls a function after each write.
type hook struct {
	bytes.Buffer
	after func(text string) error
}

func (h *hook) Write(p []byte) (int, error) {
	h.Buffer.Write(p)
	return len(p), h.after(h.String())
}

// An output that cannot be written is found before the first run. Nothing else is touched.
func TestAWrongOutputIsFoundFirst(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "old.json")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
	below := filepath.Join(file, "below") // a file is no folder
	for flag, name := range map[string]string{"-o": below, "-json": below, "-svg": below} {
		var out bytes.Buffer
		err := run(context.Background(), []string{"-devices", "10", flag, name}, &out, io.Discard)
		require.ErrorContains(t, err, flag+": ")
		require.ErrorContains(t, err, "; give a ")
		require.Empty(t, out.String())
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "old", string(text))
}

// A run that ends early has printed its rows, and writes what it has: after an interrupt, and when
// the table cannot be written any more.
func TestAnEarlyEndKeepsTheResults(t *testing.T) {
	full := errors.New("no space left")
	for _, c := range []struct {
		name, want string
		end        func(cancel context.CancelFunc) error
	}{
		{"interrupt", "interrupted during restart, no spread", func(cancel context.CancelFunc) error {
			cancel()
			return nil
		}},
		{"table", full.Error(), func(context.CancelFunc) error { return full }},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			report, results := filepath.Join(folder, "report.html"), filepath.Join(folder, "results.json")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &hook{after: func(text string) error {
				if strings.Contains(text, " default ") {
					return c.end(cancel)
				}
				return nil
			}}
			err := run(ctx, []string{"-devices", "50", "-scenario", "restart,cells", "-o", report, "-json", results, "-svg",
				folder}, out, io.Discard)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, 1, status(err))
			require.Equal(t, 3, strings.Count(out.String(), "\n"), "title, head and one row: %s", out.String())
			text, err := os.ReadFile(results)
			require.NoError(t, err)
			var families []family
			require.NoError(t, json.Unmarshal(text, &families))
			require.Len(t, families, 1)
			require.Len(t, families[0].Results, 1)
			text, err = os.ReadFile(report)
			require.NoError(t, err)
			require.Contains(t, string(text), "<td>default</td>")
			require.FileExists(t, filepath.Join(folder, "restart-attempts.svg"))
		})
	}
}

// An interrupt before the first result leaves the files of an earlier run alone.
func TestAnEndWithoutResultsKeepsTheFiles(t *testing.T) {
	folder := t.TempDir()
	report, results := filepath.Join(folder, "report.html"), filepath.Join(folder, "results.json")
	for _, file := range []string{report, results} {
		require.NoError(t, os.WriteFile(file, []byte("earlier"), 0o600))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := run(ctx, []string{"-devices", "50", "-o", report, "-json", results}, io.Discard, io.Discard)
	require.ErrorIs(t, err, context.Canceled)
	for _, file := range []string{report, results} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, "earlier", string(text))
	}
}

// An output that fails at the end does not take the others with it.
func TestAFailedOutputLeavesTheOthers(t *testing.T) {
	folder := t.TempDir()
	report := filepath.Join(folder, "report.html")
	full := errors.New("no space left")
	out := &hook{after: func(string) error { return full }}
	err := run(t.Context(), []string{"-devices", "10", "-rules", "default", "-json", "-", "-o", report}, out, io.Discard)
	require.ErrorIs(t, err, full)
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	require.Contains(t, string(text), "<td>default</td>")
}
