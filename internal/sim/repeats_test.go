package sim_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/retries.md has a table of operations that are repeated after an unknown outcome. Each row
// names an existing test.
func TestWhatIsRepeatedIsHeldByTests(t *testing.T) {
	text, err := os.ReadFile("../../docs/retries.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "## What is repeated\n")
	require.True(t, found, "the section is gone")
	section, _, _ = strings.Cut(section, "\n#")
	named := regexp.MustCompile("`([a-z/0-9]+)` (Test\\w+)")
	rows := 0
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| operation") {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(line, -1)
		require.NotEmpty(t, tests, "no test holds %s", line)
		for _, m := range tests {
			require.True(t, hasTest(t, m[1], m[2]), "%s has no %s", m[1], m[2])
		}
	}
	require.GreaterOrEqual(t, rows, 8)
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, dir)
	for _, f := range files {
		file, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if fn, is := d.(*ast.FuncDecl); is && fn.Name.Name == name && fn.Recv == nil {
				return true
			}
		}
	}
	return false
}
