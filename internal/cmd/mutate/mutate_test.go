package main

import (
	"go/token"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
)

func TestSitesAreFoundInTheSyntaxTree(t *testing.T) {
	for code, want := range map[string][]string{
		"if a < b {}": {"a < b becomes a >= b", "a < b becomes a <= b"},
		"if ok {}":    {"ok becomes !(ok)"},
		"for a > 0 && ok { a-- }": {
			"a > 0 && ok becomes !(a > 0 && ok)", "a > 0 && ok becomes a > 0 || ok", "a > 0 becomes a <= 0",
			"a > 0 becomes a >= 0", "a-- becomes nothing",
		},
		"for i := 0; i != a; i++ {}":              {"i != a becomes i == a"},
		"mu.Lock(); defer mu.Unlock(); go f()":    nil,
		"f(a + b)":                                {"f(a + b) becomes nothing", "a + b becomes a - b"},
		"a := b; a = f(b, func() { a = 2 })":      {"a = f(b, func() { a = 2 }) becomes nothing", "a = 2 becomes nothing"},
		"x := make([]byte, 0, a*b)":               nil,
		"switch { case a == 1: panic(`a == 1`) }": {"a == 1 becomes a != 1", "panic(`a == 1`) becomes nothing"},
	} {
		f := finder{site: site{file: "p.go"}, source: "package p\nfunc g() {\n" + code + "\n}\n", fset: token.NewFileSet()}
		require.NoError(t, f.find())
		var got []string
		for _, s := range f.sites {
			require.Equal(t, 3, s.line)
			got = append(got, s.old+" becomes "+s.new)
		}
		require.ElementsMatch(t, want, got, code)
	}
}

func TestNearImportersTestAPackageFirst(t *testing.T) {
	tests := []string{"a_test.go"}
	all := map[string]*goPackage{
		"base": {TestGoFiles: tests, importers: []string{"bare", "near"}},
		"bare": {importers: []string{"far", "near"}},
		"near": {TestGoFiles: tests, importers: []string{"far"}},
		"far":  {XTestGoFiles: tests, importers: []string{"top"}},
		"top":  {TestGoFiles: tests},
	}
	require.Equal(t, []string{"base", "near", "far"}, testers(all, "base"))
	require.Equal(t, []string{"near", "far", "top"}, testers(all, "near"))
}

// writeModule writes a module with a package without tests, whose importer tests all of sum but its
// boundary, and a test that fails if FAIL is set.
func writeModule(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module example.com/p\n\ngo 1.23\n",
		"sum/sum.go": "package sum\n\nfunc Sum(a, b int) int {\n\tif a < 0 {\n\t\ta = 0\n\t}\n\treturn a + b\n}\n",
		"p.go":       "package p\n",
		"p_test.go": "package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n\n\t\"example.com/p/sum\"\n)\n\n" +
			"func TestSum(t *testing.T) {\n\tif sum.Sum(1, 2) != 3 || sum.Sum(-1, 2) != 2 || os.Getenv(\"FAIL\") != \"\" {\n" +
			"\t\tt.Fatal(\"wrong\")\n\t}\n}\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
}

func TestBugsAreCaughtByTestsOfImporters(t *testing.T) {
	if !testkit.Long() {
		t.Skip("SKIPPED: runs the go command; HUBLINE_LONG=1 does it")
	}
	writeModule(t)
	results, err := mutate(t.Context(), []string{"./..."}, 1, 100, 2, time.Minute)
	require.NoError(t, err)
	got := map[string]string{}
	for _, r := range results {
		require.Equal(t, r.caught, r.note != "")
		got[r.String()] = r.note
	}
	require.Equal(t, map[string]string{
		"sum/sum.go Sum: a < 0 becomes a >= 0":  "TestSum in example.com/p",
		"sum/sum.go Sum: a < 0 becomes a <= 0":  "",
		"sum/sum.go Sum: a = 0 becomes nothing": "TestSum in example.com/p",
		"sum/sum.go Sum: a + b becomes a - b":   "TestSum in example.com/p",
	}, got)
	page := string(report(results, "the command"))
	require.Contains(t, page, "| **all** | 4 | 3 | 1 |\n")
	require.Contains(t, page, "    sum/sum.go Sum: a < 0 becomes a <= 0\n")
}

func TestATestThatFailsWithoutABugEndsTheRun(t *testing.T) {
	if !testkit.Long() {
		t.Skip("SKIPPED: runs the go command; HUBLINE_LONG=1 does it")
	}
	writeModule(t)
	t.Setenv("FAIL", "1")
	_, err := mutate(t.Context(), []string{"./sum"}, 1, 100, 1, time.Minute)
	require.ErrorContains(t, err, "the tests fail without a bug: TestSum in example.com/p")
}
