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

// docs/features.md names the tests of what is repeated after an unknown outcome. Each operation of
// the table in docs/retries.md is there, and each test exists.
func TestWhatIsRepeatedIsHeldByTests(t *testing.T) {
	named := regexp.MustCompile("`([a-z/0-9]+)` (Test\\w+)")
	held := repeatedOperations(t, "../../docs/features.md")
	for operation := range repeatedOperations(t, "../../docs/retries.md") {
		require.Contains(t, held, operation)
	}
	require.GreaterOrEqual(t, len(held), 8)
	for operation, cells := range held {
		tests := named.FindAllStringSubmatch(cells, -1)
		require.NotEmpty(t, tests, "no test holds %s", operation)
		for _, m := range tests {
			require.True(t, hasTest(t, m[1], m[2]), "%s has no %s", m[1], m[2])
		}
	}
}

// repeatedOperations returns the rows of a page's section "What is repeated": the other cells by
// operation.
func repeatedOperations(t *testing.T, page string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "## What is repeated\n")
	require.True(t, found, "%s has no such section", page)
	section, _, _ = strings.Cut(section, "\n#")
	rows := map[string]string{}
	for line := range strings.Lines(section) {
		if operation, cells, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok && operation != "operation" {
			rows[operation] = cells
		}
	}
	return rows
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
