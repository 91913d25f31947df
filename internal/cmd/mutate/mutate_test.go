package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

func TestEveryMutationApplies(t *testing.T) {
	for _, area := range areas() {
		seen := map[[3]string]bool{}
		for _, m := range tables[area] {
			_, _, err := m.apply(root)
			if err != nil {
				t.Errorf("%s: %s: the row is stale, adapt it to the code: %v", area, m.File, err)
			}
			key := [3]string{m.File, m.Old, m.New}
			if seen[key] {
				t.Errorf("%s: %s: %q stands twice in the table", area, m.File, m.Old)
			}
			seen[key] = true
		}
	}
}

// TestEachResultIsReported runs the command on a module whose only test detects one mutation of
// four.
func TestEachResultIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("go.mod", "module example.com/p\n\ngo 1.23\n")
	write("p.go", "package p\n\nfunc add(a, b int) int {\n\tif a < 0 {\n\t\treturn b + a\n\t}\n\treturn a + b\n}\n")
	write("p_test.go", "package p\n\nimport \"testing\"\n\n"+
		"func TestAdd(t *testing.T) {\n\tif add(1, 2) != 3 {\n\t\tt.Fatal(\"wrong\")\n\t}\n}\n\n"+
		"func TestThatFails(t *testing.T) {\n\tt.Fatal(\"always\")\n}\n")
	x := &runner{root: dir, scratch: t.TempDir(), timeout: 1e11, sound: map[string]func() error{}}
	for i, c := range []struct {
		name string
		mutation
		want result
		note string
	}{
		{"a test fails", mutation{Old: "a + b", New: "a - b", Test: ". -run TestAdd"}, caught, "TestAdd"},
		{"no test fails", mutation{Old: "b + a", New: "b - a", Test: ". -run TestAdd"}, survived, `"b + a" became "b - a"`},
		{"equivalent", mutation{Old: "a + b", New: "b + a + 0", Test: ". -run TestAdd", Equivalent: "addition commutes"},
			equivalent,
			"addition commutes"},
		{"not equivalent", mutation{Old: "a + b", New: "a * b", Test: ". -run TestAdd", Equivalent: "a guess"}, broken,
			"marked equivalent, but a test failed: TestAdd"},
		{"does not compile", mutation{Old: "a + b", New: "a + c", Test: ". -run TestAdd"}, broken, "undefined: c"},
		{"not there", mutation{Old: "a ^ b", New: "a", Test: ". -run TestAdd"}, broken, `"a ^ b" stands 0 times, not once`},
		{"twice there", mutation{Old: "return", New: "panic", Test: ". -run TestAdd"}, broken,
			`"return" stands 2 times, not once`},
		{"no change", mutation{Old: "a + b", New: "a + b", Test: ". -run TestAdd"}, broken, "changes nothing"},
		{"no such test", mutation{Old: "a + b", New: "a - b", Test: ". -run TestNone"}, broken, "no test has the name"},
		{"a test that fails anyway", mutation{Old: "a + b", New: "a - b"}, broken,
			"the tests fail without the mutation: TestThatFails"},
	} {
		c.File = "p.go"
		r := row{mutation: c.mutation}
		x.try(t.Context(), &r, i)
		require.Equal(t, c.want, r.result, "%s: %s", c.name, r.note)
		require.Contains(t, r.note, c.note, c.name)
	}
}
