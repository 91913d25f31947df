package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNamesOfAModule(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"go.mod":              "module m",
		"a/a.go":              "package a\n\nconst X, y = 1, 2\n\ntype T struct{}\n\nfunc (T) Method() {}\n",
		"a/a_windows.go":      "package a\n\nfunc OnWindows() {}\n",
		"a/a_test.go":         "package a\n\nfunc TestX() {}\n",
		"a/internal/b/b.go":   "package b\n\nvar Hidden int\n",
		"cmd/main.go":         "package main\n\nfunc Exported() {}\n",
		"nested/go.mod":       "module m/nested",
		"nested/n.go":         "package n\n\nvar Other int\n",
		"nothing/exported.go": "package nothing\n\nvar x int\n",
	} {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	var out strings.Builder
	require.NoError(t, list(&out, root))
	require.Equal(t, "a: 3\n  OnWindows T X\n\n", out.String())
}

func TestLongLists(t *testing.T) {
	names := strings.Fields(strings.Repeat("Abcdefghi ", 20))
	for line := range strings.Lines(wrapped(names)) {
		require.LessOrEqual(t, len(line), width+1)
	}
	require.Equal(t, names, strings.Fields(wrapped(names)))
}
