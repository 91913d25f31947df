package docs

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	root   = "../.."
	module = "github.com/hubline-iot/hubline"
)

// pages are the documents that begin with a program and its output.
var pages = []string{
	"README.md", "docs/mqtt.md", "docs/amqp.md", "docs/https.md", "docs/twin-and-methods.md",
	"docs/outbox.md", "docs/files.md", "docs/retries.md", "docs/failures.md", "docs/fleets.md",
	"docs/brokers.md", "docs/provisioning.md", "docs/testhub.md", "docs/small-boards.md", "docs/security.md",
	"docs/performance.md", "docs/edge.md", "docs/next-hub.md", "docs/device-update.md", "docs/updates.md",
}

// block is fenced code.
type block struct {
	page, language, text string
	line                 int
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

func (b block) isProgram() bool {
	return b.language == "go" && strings.HasPrefix(b.text, "package main")
}

// isFile reports whether the block is a file of a module that this one does not build: that of the
// page about containers, or of the guide for boards, which cross/arm builds.
func (b block) isFile() bool {
	return b.language == "go" && (strings.HasPrefix(b.text, "package containers") ||
		strings.HasPrefix(b.text, "//go:build ") || strings.HasPrefix(b.text, "// Command "))
}

// isFrame reports whether the block is the frame of the programs, which is built with each of them.
func (b block) isFrame() bool { return b.page == "docs/README.md" && b.isProgram() }

var fence = regexp.MustCompile("(?m)^```(\\w*)\n((?s:.*?))^```$")

// opening returns the program at the beginning of a page, and its output.
func opening(t *testing.T, page string) (program, prints string) {
	t.Helper()
	all := blocks(t, page)
	first := slices.IndexFunc(all, func(b block) bool { return b.language == "go" })
	require.GreaterOrEqual(t, first, 0, "%s does not begin with a program", page)
	require.True(t, len(all) > first+1 && all[first+1].language == "text", "%s does not say what its program prints", page)
	program = all[first].text
	if !all[first].isProgram() {
		program = framed(t, program)
	}
	return program, all[first+1].text
}

// framed returns lines of a page as a program: in the frame of docs/README.md, with imports.
func framed(t *testing.T, lines string) string {
	t.Helper()
	frame, here := blocks(t, "docs/README.md")[0].text, "\t// the lines of a page\n"
	require.Contains(t, frame, here)
	program := strings.Replace(frame, here, lines, 1)
	file, err := parser.ParseFile(token.NewFileSet(), "", program, parser.SkipObjectResolution)
	require.NoError(t, err, program)
	paths, err := importPaths()
	require.NoError(t, err)
	imported := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if name, ok := s.X.(*ast.Ident); ok && paths[name.Name] != "" {
				imported[name.Name] = true
			}
		}
		return true
	})
	imports := "package main\n"
	for _, name := range slices.Sorted(maps.Keys(imported)) { // a package of the same text is not built again
		imports += fmt.Sprintf("import %s %q\n", name, paths[name])
	}
	return strings.Replace(program, "package main\n", imports, 1)
}

func blocks(t *testing.T, page string) (found []block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	for _, m := range fence.FindAllSubmatchIndex(text, -1) {
		line := 1 + strings.Count(string(text[:m[0]]), "\n")
		found = append(found, block{page, string(text[m[2]:m[3]]), string(text[m[4]:m[5]]), line})
	}
	return found
}

// Each page begins with a program, whose output is the one on the page.
func TestProgramsPrintWhatThePagesSay(t *testing.T) {
	for _, page := range pages {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			_, want := opening(t, page)
			prints(t, program(t, page), want)
		})
	}
}

// prints runs a command whose output is known.
func prints(t *testing.T, cmd *exec.Cmd, want string) {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	require.Equal(t, want, string(out))
}

// built is a program with those of all pages, recipes and guides as packages, because linking takes
// the most time.
var built struct {
	sync.Once
	folder, bin string
}

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // the programs wait more than they compute
	status := m.Run()
	os.RemoveAll(built.folder)
	os.Exit(status)
}

// program returns the command that runs the program of a page or guide, or the recipe of a block.
func program(t *testing.T, of string) *exec.Cmd {
	t.Helper()
	built.Do(func() {
		programs := map[string]string{}
		for _, page := range pages {
			programs[page], _ = opening(t, page)
		}
		for _, recipe := range recipes(t) {
			programs[recipe[0].String()] = framed(t, recipe[0].text)
		}
		for name := range guides {
			programs[guidePage(name)] = blocks(t, guidePage(name))[1].text
		}
		buildPrograms(t, programs)
	})
	require.NotEmpty(t, built.bin, "another test could not build the programs")
	return exec.CommandContext(t.Context(), built.bin, of)
}

var unfit = regexp.MustCompile(`\W`) // for the name of a package

func buildPrograms(t *testing.T, programs map[string]string) {
	t.Helper()
	folder, err := filepath.Abs(".")
	require.NoError(t, err)
	built.folder, err = os.MkdirTemp("", "pages")
	require.NoError(t, err)
	replace := map[string]string{}
	write := func(path, text string) {
		source := filepath.Join(built.folder, strings.ReplaceAll(path, "/", "_"))
		require.NoError(t, os.WriteFile(source, []byte(text), 0o600))
		replace[filepath.Join(folder, path)] = source
	}
	imports, cases := "", ""
	for _, of := range slices.Sorted(maps.Keys(programs)) {
		name := unfit.ReplaceAllString(of, "_")
		program := strings.Replace(programs[of], "package main\n", "package "+name+"\n", 1)
		write("pages/"+name+"/main.go", strings.Replace(program, "\nfunc main() {", "\nfunc Main() {", 1))
		imports += fmt.Sprintf("import %q\n", module+"/internal/docs/pages/"+name)
		cases += fmt.Sprintf("case %q: %s.Main()\n", of, name)
	}
	write("pages/main.go", "package main\n\nimport \"os\"\n"+imports+
		"func main() {\nname := os.Args[1]\nos.Args = os.Args[:1]\nswitch name {\n"+cases+"}\n}\n")
	overlay, bin := filepath.Join(built.folder, "overlay.json"), filepath.Join(built.folder, "pages.exe")
	list, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, list, 0o600))
	out, err := exec.Command("go", "build", "-overlay", overlay, "-ldflags=-s -w", "-o", bin, "./pages").CombinedOutput()
	require.NoError(t, err, string(out))
	built.bin = bin
}

// The README's program is also a runnable example.
func TestTheFirstProgramIsAnExample(t *testing.T) {
	example, err := os.ReadFile(filepath.Join(root, "examples/hello/main.go"))
	require.NoError(t, err)
	_, want, _ := strings.Cut(string(example), "\npackage main")
	program, _ := opening(t, "README.md")
	require.Equal(t, "package main"+want, program)
}

// The page about containers has a file that CI compiles.
func TestTheTestInAContainerIsAFile(t *testing.T) {
	want, err := os.ReadFile(filepath.Join(root, "interop/containers/testhub_test.go"))
	require.NoError(t, err)
	all := blocks(t, "docs/testcontainers.md")
	require.True(t, all[0].isFile())
	require.Equal(t, string(want), all[0].text)
}

// Fragments use these names without declaring them.
const given = `
var (
	ctx      context.Context
	all      []*transport.Credentials
	creds    *transport.Credentials
	client   *device.Client
	handle   device.MessageHandler
	message  *transport.Message
	provider trace.TracerProvider
	hub      *testbroker.Hub
	file     io.Reader
	blink    func([]byte) error
	check    func(error)
	fetch    func(context.Context) (string, error)
)
`

// Every fragment of Go code in a document compiles. Unused variables and imports are allowed.
func TestFragmentsCompile(t *testing.T) {
	fset := token.NewFileSet()
	var fragments []block
	for _, page := range documents(t) {
		for _, b := range blocks(t, page) {
			if b.language == "go" && !b.isFile() && !b.isFrame() {
				fragments = append(fragments, b)
			}
		}
	}
	imports, find := packages(t, fragments)
	load := importer.ForCompiler(fset, "gc", find)
	for _, b := range fragments {
		text := "package p\n" + imports + given + "func _() error {\n" + b.text + "\nreturn nil\n}\n"
		if b.isProgram() {
			text = b.text
		}
		file, err := parser.ParseFile(fset, b.String(), text, 0)
		if err != nil && !b.isProgram() { // declarations
			file, err = parser.ParseFile(fset, b.String(), "package p\n"+imports+given+b.text, 0)
		}
		require.NoError(t, err, b.String())
		config := types.Config{Importer: load, Error: func(err error) {
			if fault, ok := err.(types.Error); ok && !fault.Soft {
				t.Errorf("%v: %s", b, fault.Msg)
			}
		}}
		_, _ = config.Check("p", fset, []*ast.File{file}, nil)
	}
}

// documents are the pages for users.
func documents(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	guides, err := filepath.Glob(filepath.Join(root, "docs", "migrate", "*.md"))
	require.NoError(t, err)
	found := []string{"README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "cross/arm/README.md", "cmd/testhub/README.md",
		"cmd/testhub/API.md", "cmd/testhub/CLIENTS.md"}
	for _, name := range names {
		found = append(found, "docs/"+filepath.Base(name))
	}
	for _, name := range guides {
		found = append(found, "docs/migrate/"+filepath.Base(name))
	}
	return found
}

// importPaths are the packages that pages may use, by name.
var importPaths = sync.OnceValues(func() (map[string]string, error) {
	names := map[string]string{"nethttp": "net/http"}
	for _, path := range []string{"bytes", "context", "crypto", "crypto/sha256", "crypto/tls", "encoding/hex",
		"encoding/json", "errors", "fmt", "io", "log", "log/slog", "os", "strings", "sync", "sync/atomic", "testing",
		"testing/synctest", "time", "github.com/stretchr/testify/require", "go.opentelemetry.io/otel/trace"} {
		names[path[strings.LastIndex(path, "/")+1:]] = path
	}
	names["rand"] = "math/rand/v2"
	rows, err := list("{{.ImportPath}} {{.Name}}", module+"/...")
	for _, row := range rows {
		if path, name := row[0], row[1]; !strings.Contains(path, "internal") && name != "main" {
			names[name] = path
		}
	}
	return names, err
})

// list returns the lines of go list, in words.
func list(args ...string) (rows [][]string, err error) {
	out, err := exec.Command("go", append([]string{"list", "-f"}, args...)...).Output()
	for line := range strings.Lines(string(out)) {
		rows = append(rows, strings.Fields(line))
	}
	return rows, err
}

// packages returns the import declarations that fragments need, and a look-up of the compiled
// packages.
func packages(t *testing.T, fragments []block) (imports string, find importer.Lookup) {
	t.Helper()
	used := map[string]bool{}
	for _, text := range append([]string{given}, texts(fragments)...) {
		for _, m := range regexp.MustCompile(`\b(\w+)\.`).FindAllStringSubmatch(text, -1) {
			used[m[1]] = true
		}
	}
	paths, err := importPaths()
	require.NoError(t, err)
	var b strings.Builder
	args := []string{"{{.ImportPath}} {{.Export}}", "-export", "-deps"} // compiles what no test has compiled
	for name, path := range paths {
		if used[name] {
			fmt.Fprintf(&b, "import %s %q\n", name, path)
			args = append(args, path)
		}
	}
	for _, f := range fragments {
		if f.isProgram() {
			file, err := parser.ParseFile(token.NewFileSet(), f.String(), f.text, parser.ImportsOnly)
			require.NoError(t, err)
			for _, i := range file.Imports {
				args = append(args, strings.Trim(i.Path.Value, `"`))
			}
		}
	}
	exports := map[string]string{}
	rows, err := list(args...)
	require.NoError(t, err)
	for _, row := range rows {
		if len(row) == 2 {
			exports[row[0]] = row[1]
		}
	}
	return b.String(), func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
}

func texts(blocks []block) (all []string) {
	for _, b := range blocks {
		all = append(all, b.text)
	}
	return all
}

// Links between documents point to existing files and headings.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#: ]*)(?:#([^)]*))?\)`)
	for _, page := range append(documents(t), "SECURITY.md", "interop/README.md", "bench/README.md") {
		for _, m := range link.FindAllSubmatch(prose(t, page), -1) {
			target := page
			if len(m[1]) > 0 {
				target = filepath.Join(filepath.Dir(page), string(m[1]))
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: %s", page, m[1])
			} else if len(m[2]) > 0 && !slices.Contains(anchors(prose(t, target)), string(m[2])) {
				t.Errorf("%s: %s has no heading #%s", page, target, m[2])
			}
		}
	}
}

// prose returns a page without its code.
func prose(t *testing.T, page string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	return fence.ReplaceAll(text, nil)
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInID = regexp.MustCompile(`[^\pL\pN_ -]`)
)

// anchors returns the names by which links reach the headings of a page.
func anchors(page []byte) (all []string) {
	for _, m := range heading.FindAllSubmatch(page, -1) {
		id := notInID.ReplaceAllString(strings.ToLower(string(m[1])), "")
		all = append(all, strings.ReplaceAll(id, " ", "-"))
	}
	return all
}

// The folders and files that ARCHITECTURE.md names exist.
func TestTheRoomsExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	require.NoError(t, err)
	named := regexp.MustCompile("`([a-z0-9]+(?:/[a-z0-9]+)*(?:/[a-zA-Z0-9_]+\\.(?:go|md))?)`")
	found := 0
	for _, m := range named.FindAllSubmatch(text, -1) {
		path := string(m[1])
		if !strings.Contains(path, "/") {
			continue
		}
		found++
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Error(err)
		}
	}
	require.Greater(t, found, 30)
}

// A row of the table of packages in ARCHITECTURE.md is about one package, and no package has two.
func TestAPackageHasOneRow(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	require.NoError(t, err)
	_, rows, found := strings.Cut(string(text), "| package | what is in it | begin reading at |\n|--|--|--|\n")
	require.True(t, found)
	rows, _, _ = strings.Cut(rows, "\n\n")
	seen := map[string]bool{}
	for row := range strings.Lines(rows) {
		name, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
		require.Regexp(t, "^`[a-z0-9/]+`$", name)
		require.False(t, seen[name], "%s has two rows", name)
		seen[name] = true
		files, err := filepath.Glob(filepath.Join(root, strings.Trim(name, "`"), "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files, name)
	}
	require.Greater(t, len(seen), 40)
}
