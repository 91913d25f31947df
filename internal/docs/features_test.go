package docs

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

const none = "–" // the cell of a missing feature

// cell matches a cell that names a test. quoted matches a second column that names a case of the
// transports' suite.
var (
	cell   = regexp.MustCompile("^`([a-z0-9/]+)` (Test\\w+)$")
	quoted = regexp.MustCompile(`suite: "([^"]+)"`)
)

// The tests that docs/features.md names exist. README.md has its features, and docs/security.md its
// attacks. With -v the tables are printed.
func TestEachFeatureHasATest(t *testing.T) {
	long := read(t, "docs/features.md")
	short := table(t, read(t, "README.md"), "| feature | MQTT | paho |")
	tests := &tree{files: map[string]map[string]bool{}}

	rows := table(t, long, "| feature | held by | MQTT | paho |")
	require.GreaterOrEqual(t, len(rows), 20)
	require.Len(t, short, len(rows), "README.md has a row for each of docs/features.md")
	t.Logf("%-45s %-6s %-6s %-6s %-6s", "", "MQTT", "paho", "AMQP", "HTTPS")
	for i, row := range rows {
		feature, how, cells := row[0], row[1], row[2:]
		require.Len(t, cells, 4, feature)
		if m := quoted.FindStringSubmatch(how); m != nil {
			require.True(t, tests.hasCase(t, m[1]), "%s: the suite has no case %q", feature, m[1])
		}
		var marks []string
		for _, c := range cells {
			if c == none {
				marks = append(marks, none)
				continue
			}
			tests.check(t, feature, c)
			marks = append(marks, "yes")
		}
		require.Contains(t, marks, "yes", feature)
		require.Equal(t, append([]string{feature}, marks...), short[i], "README.md and docs/features.md differ")
		t.Logf("%-45s %-6s %-6s %-6s %-6s", feature, marks[0], marks[1], marks[2], marks[3])
	}

	attacks := "| attack on updates | held by |"
	for _, head := range []string{"| feature, over every transport | held by |", "| feature of MQTT 5 | held by |",
		"| feature of the MQTT v5 profile | held by |", "| feature of software updates | held by |", attacks} {
		rows = table(t, long, head)
		require.GreaterOrEqual(t, len(rows), 9, head)
		for _, row := range rows {
			require.Len(t, row, 2, head)
			for _, c := range strings.Split(row[1], ", ") {
				tests.check(t, row[0], c)
			}
			t.Logf("%-80s %s", row[0], row[1])
		}
	}
	held := table(t, long, attacks)
	for i, row := range table(t, read(t, "docs/security.md"), "| attack on updates | what happens |") {
		require.Less(t, i, len(held), "docs/features.md has no test for %q", row[0])
		require.Equal(t, row[0], held[i][0], "docs/security.md and docs/features.md differ")
	}
}

// docs/features.md names the tests of what is repeated after an unknown outcome: for each operation
// of the table in docs/retries.md.
func TestWhatIsRepeatedIsHeldByTests(t *testing.T) {
	operations := func(page string) map[string][]string {
		_, section, found := strings.Cut(read(t, page), "## What is repeated\n")
		require.True(t, found, "%s has no such section", page)
		all := map[string][]string{}
		for _, row := range table(t, section, "| operation | ") {
			all[row[0]] = row[1:]
		}
		return all
	}
	tests := &tree{files: map[string]map[string]bool{}}
	held := operations("docs/features.md")
	for operation := range operations("docs/retries.md") {
		require.Contains(t, held, operation)
	}
	require.GreaterOrEqual(t, len(held), 8)
	for operation, cells := range held {
		for _, c := range strings.Split(cells[0], ", ") {
			tests.check(t, operation, c)
		}
	}
}

// The check itself notices a missing test.
func TestAMissingTestIsNoticed(t *testing.T) {
	tests := &tree{files: map[string]map[string]bool{}}
	require.True(t, tests.has(t, "internal/docs", "TestAMissingTestIsNoticed"))
	require.False(t, tests.has(t, "internal/docs", "TestThatDoesNotExist"))
	require.False(t, tests.has(t, "internal/docs", "table"), "a function that is no test")
	require.False(t, tests.has(t, "internal/nowhere", "TestAMissingTestIsNoticed"))
	require.False(t, tests.hasCase(t, "a case that does not exist"))
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// table returns the cells of the table whose header begins with head, row by row.
func table(t *testing.T, text, head string) (rows [][]string) {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n"+head)
	require.True(t, found, "no table begins with %s", head)
	for i, line := range strings.Split(rest, "\n") {
		if i < 2 { // the rest of the header, and the rule
			continue
		}
		line, isRow := strings.CutPrefix(line, "| ")
		if !isRow {
			break
		}
		cells := strings.Split(strings.TrimSuffix(line, " |"), " | ")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

// tree is the set of tests and string literals in the test files and in the suite's package, read
// at the first use of a folder.
type tree struct {
	files map[string]map[string]bool // by folder: the names of test functions, and string literals in quotes
}

func (f *tree) check(t *testing.T, feature, c string) {
	t.Helper()
	m := cell.FindStringSubmatch(c)
	require.NotNil(t, m, "%s: %q does not name a test as `folder` TestName", feature, c)
	require.True(t, f.has(t, m[1], m[2]), "%s: %s has no %s", feature, m[1], m[2])
}

func (f *tree) has(t *testing.T, dir, name string) bool {
	t.Helper()
	return strings.HasPrefix(name, "Test") && f.read(t, dir)[name]
}

func (f *tree) hasCase(t *testing.T, name string) bool {
	t.Helper()
	return f.read(t, "transport/transporttest")[`"`+name+`"`]
}

func (f *tree) read(t *testing.T, dir string) map[string]bool {
	t.Helper()
	if known := f.files[dir]; known != nil {
		return known
	}
	found := map[string]bool{}
	f.files[dir] = found
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	require.NoError(t, err)
	for _, name := range names {
		isTest := strings.HasSuffix(name, "_test.go")
		if !isTest && dir != "transport/transporttest" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if isTest && n.Recv == nil {
					found[n.Name.Name] = true
				}
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					found[n.Value] = true
				}
			}
			return true
		})
	}
	return found
}
