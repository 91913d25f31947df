package importguard

import (
	"bufio"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// coreMinor is the minor version of Go that limits the core's language and library.
const coreMinor = 23

// banned are functions of allowed packages that the core must not use.
var banned = map[string]string{
	"context.Cause": "Go 1.23 returns nil for an ended lifetime.Context; use lifetime.Cause",
	"time.After":    "leaves a timer behind; the owner resets one",
	"time.Tick":     "leaves a timer behind; the owner resets one",
}

// bannedFunction returns why the core must not call the package-level function name of package
// path, or "" if it may.
func bannedFunction(path, name string) string {
	switch path {
	case "sync/atomic":
		return "a 64-bit value at an odd address crashes 32-bit processors; use the types, atomic.Int64 and the like"
	case "math/rand/v2":
		if !strings.HasPrefix(name, "New") {
			return "a board may have no source of entropy; make a generator with a seed of its own"
		}
	}
	return banned[path+"."+name]
}

// The type checker checks the language version. The library is checked with the lists of additions
// per release that come with Go.
func TestCoreKeepsToAnOldGo(t *testing.T) {
	added := additions(t)
	c := newChecker(t, added, slices.Concat(core, boards)...)
	for _, pkg := range c.own {
		var files []string
		for _, name := range pkg.GoFiles {
			files = append(files, filepath.Join(pkg.Dir, name))
		}
		for _, fault := range c.check(t, pkg.ImportPath, files, nil) {
			t.Error(fault)
		}
	}
}

// The check itself finds faults.
func TestTheGoVersionCheckFindsFaults(t *testing.T) {
	added := additions(t)
	c := newChecker(t, added, "strings", "sync", "sync/atomic", "errors", "time", "math/rand/v2", "net/http", "context")
	for _, probe := range []struct{ name, source, want string }{
		{"old code", `import "strings"; var _ = strings.Cut`, ""},
		{"old method", `import "sync"; var w sync.WaitGroup; func f() { w.Wait() }`, ""},
		{"function of 1.24", `import "strings"; var _ = strings.SplitSeq`, "strings.SplitSeq is of Go 1.24"},
		{"method of 1.25", `import "sync"; var w sync.WaitGroup; func f() { w.Go(f) }`, "sync.WaitGroup.Go is of Go 1.25"},
		{"promoted method of 1.25", `import "sync"; var w struct { sync.WaitGroup }; func f() { w.Go(f) }`,
			"sync.WaitGroup.Go is of Go 1.25"},
		{"generic function of 1.26", `import "errors"; var e error; var _, _ = errors.AsType[error](e)`,
			"errors.AsType is of Go 1.26"},
		{"field of 1.24", `import "net/http"; var _ = http.Server{HTTP2: nil}`, "net/http.Server.HTTP2 is of Go 1.24"},
		{"generic alias of 1.24", `type A[T any] = []T; var _ A[int]`, "go1.24"},
		{"new with a value, of 1.26", `var _ = new(3)`, "go1.26"},
		{"range over a function, of 1.23", `func f(s func(func(int) bool)) { for range s { } }`, ""},
		{"address of a number", `import "sync/atomic"; var n int64; func f() { atomic.AddInt64(&n, 1) }`, "crashes 32-bit"},
		{"a number of its own", `import "sync/atomic"; var n atomic.Int64; func f() { n.Add(1) }`, ""},
		{"shared random numbers", `import "math/rand/v2"; var _ = rand.IntN(3)`, "seed of its own"},
		{"own random numbers", `import "math/rand/v2"; var _ = rand.New(rand.NewPCG(1, 2)).IntN(3)`, ""},
		{"a cause that may be missing", `import "context"; var _ = context.Cause(nil)`, "use lifetime.Cause"},
		{"timer left behind", `import "time"; var _ = time.After(1)`, "leaves a timer"},
		{"code that does not compile", `var _ int = ""`, "cannot use"},
	} {
		t.Run(probe.name, func(t *testing.T) {
			faults := c.check(t, "probe", []string{"probe.go"}, []byte("package probe\n"+probe.source))
			if probe.want == "" && len(faults) != 0 || probe.want != "" && !strings.Contains(strings.Join(faults, "\n"),
				probe.want) {
				t.Errorf("got %q, want %q", faults, probe.want)
			}
		})
	}
}

// additions returns the names that releases after coreMinor added, as "PATH.NAME" or
// "PATH.TYPE.MEMBER", each with its minor version.
func additions(t *testing.T) map[string]int {
	t.Helper()
	goroot := goEnv(t, "GOROOT")
	files, _ := filepath.Glob(filepath.Join(goroot, "api", "go1*.txt"))
	old, added := map[string]bool{}, map[string]int{}
	for _, name := range files {
		minor := 0
		if text := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "go1"), ".txt"); text != "" {
			n, err := strconv.Atoi(strings.TrimPrefix(text, "."))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			minor = n
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			key := apiName(lines.Text())
			switch {
			case key == "":
			case minor <= coreMinor:
				old[key] = true
			case added[key] == 0 || added[key] > minor:
				added[key] = minor
			}
		}
		f.Close()
	}
	for key := range old { // listed again because its signature changed
		delete(added, key)
	}
	if len(added) == 0 {
		t.Skip("SKIPPED: this Go comes without its lists of additions (GOROOT/api); the core's use of the library is NOT " +
			"verified")
	}
	return added
}

// apiName parses a line such as "pkg sync, method (*WaitGroup) Go(func()) #63769".
func apiName(line string) string {
	if strings.Contains(line, "//deprecated") {
		return ""
	}
	path, rest, found := strings.Cut(strings.TrimPrefix(line, "pkg "), ", ")
	if !found {
		return ""
	}
	path, _, _ = strings.Cut(path, " (") // "pkg syscall (linux-386)"
	kind, rest, _ := strings.Cut(rest, " ")
	switch kind {
	case "method":
		owner, member, _ := strings.Cut(strings.TrimPrefix(rest, "("), ") ")
		return path + "." + word(strings.TrimPrefix(owner, "*")) + "." + word(member)
	case "type":
		if owner, member, isMember := strings.Cut(rest, ", "); isMember && (strings.HasSuffix(owner, " struct") ||
			strings.HasSuffix(owner,
				" interface")) {
			return path + "." + word(owner) + "." + word(strings.TrimPrefix(member, "embedded "))
		}
		return path + "." + word(rest)
	case "func", "const", "var":
		return path + "." + word(rest)
	}
	return ""
}

// word returns the identifier at the beginning of s.
func word(s string) string {
	end := strings.IndexFunc(s, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	if end < 0 {
		return s
	}
	return s[:end]
}

func TestAPIName(t *testing.T) {
	for line, want := range map[string]string{
		"pkg strings, func SplitSeq(string, string) iter.Seq[string] #61901": "strings.SplitSeq",
		"pkg sync, method (*WaitGroup) Go(func()) #63769":                    "sync.WaitGroup.Go",
		"pkg weak, method (Pointer[$0]) Value() *$0 #67552":                  "weak.Pointer.Value",
		"pkg net/http, type Server struct, HTTP2 *HTTP2Config #67813":        "net/http.Server.HTTP2",
		"pkg net/http, type HTTP2Config struct #67813":                       "net/http.HTTP2Config",
		"pkg crypto, type X interface { F }":                                 "crypto.X",
		"pkg crypto, type X interface, F() int":                              "crypto.X.F",
		"pkg crypto/tls, const X25519MLKEM768 = 4588 #69985":                 "crypto/tls.X25519MLKEM768",
		"pkg debug/elf, const STT_GNU_IFUNC SymType #66836":                  "debug/elf.STT_GNU_IFUNC",
		"pkg go/types, func NewAlias(*TypeName, Type) //deprecated #1":       "",
		"pkg syscall (linux-386), const AF_ALG ideal-int":                    "syscall.AF_ALG",
		"pkg encoding, type TextAppender interface { AppendText }":           "encoding.TextAppender",
		"pkg errors, func AsType[$0 error](error) ($0, bool) #51945":         "errors.AsType",
		"pkg testing, type TB interface, Context() context.Context":          "testing.TB.Context",
		"pkg math/rand/v2, type Source = rand.Source":                        "math/rand/v2.Source",
		"# a remark":                       "",
		"pkg os, var ErrProcessDone error": "os.ErrProcessDone",
		"pkg iter, type Seq[$0 interface{}] func(func($0) bool)":                           "iter.Seq",
		"pkg bytes, method (*Buffer) Peek(int) ([]uint8, error) #73794":                    "bytes.Buffer.Peek",
		"pkg log/slog, type Source struct, embedded Group":                                 "log/slog.Source.Group",
		"pkg testing/synctest, func Test(*testing.T, func(*testing.T)) #67434, #73567, #1": "testing/synctest.Test",
	} {
		if got := apiName(line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// checker type-checks packages against the compiled form of their imports.
type checker struct {
	own      []goPackage // packages of this module among those asked for
	fset     *token.FileSet
	importer types.Importer
	added    map[string]int
}

func newChecker(t *testing.T, added map[string]int, patterns ...string) *checker {
	t.Helper()
	c := &checker{fset: token.NewFileSet(), added: added}
	exports := map[string]string{}
	for _, p := range list(t, goEnv(t, "GOHOSTOS"), goEnv(t, "GOHOSTARCH"), []string{"-deps", "-export"}, patterns...) {
		exports[p.ImportPath] = p.Export
		if isOwn(p.ImportPath) {
			c.own = append(c.own, p)
		}
	}
	c.importer = importer.ForCompiler(c.fset,
		"gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return c
}

// check returns the uses in the files of names that are banned or newer than coreMinor. If source
// is not nil, it is the content of the only file.
func (c *checker) check(t *testing.T, path string, names []string, source []byte) (faults []string) {
	t.Helper()
	var files []*ast.File
	for _, name := range names {
		var src any // not a nil []byte
		if source != nil {
			src = source
		}
		f, err := parser.ParseFile(c.fset, name, src, parser.SkipObjectResolution)
		if err != nil {
			return append(faults, err.Error())
		}
		files = append(files, f)
		ast.Inspect(f, func(n ast.Node) bool { // uses that the type checker accepts
			if spec, ok := n.(*ast.TypeSpec); ok && spec.Assign.IsValid() && spec.TypeParams != nil {
				faults = append(faults, c.fset.Position(n.Pos()).String()+": a generic alias is of go1.24")
			}
			return true
		})
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{
		GoVersion: "go1." + strconv.Itoa(coreMinor),
		Importer:  c.importer,
		Error:     func(err error) { faults = append(faults, err.Error()) },
	}
	pkg, _ := config.Check(path, c.fset, files, info)
	newer := map[types.Object]string{}
	for _, imported := range pkg.Imports() {
		for key, minor := range c.added {
			if rest, ok := strings.CutPrefix(key, imported.Path()+"."); ok {
				if o := lookUp(imported, rest); o != nil {
					newer[o] = key + " is of Go 1." + strconv.Itoa(minor) + ", and the core keeps to 1." + strconv.Itoa(coreMinor)
				}
			}
		}
	}
	for ident, o := range info.Uses {
		where := c.fset.Position(ident.Pos()).String() + ": "
		if text := newer[origin(o)]; text != "" {
			faults = append(faults, where+text)
		}
		// such a file has a _tinygo.go beside it
		file := c.fset.Position(ident.Pos()).Filename
		onBoards := !strings.HasSuffix(file, "_std.go") && !strings.HasSuffix(file, "internal/lifetime/cause.go")
		if f, ok := o.(*types.Func); ok && onBoards && f.Pkg() != nil && f.Signature().Recv() == nil {
			if why := bannedFunction(f.Pkg().Path(), f.Name()); why != "" {
				faults = append(faults, where+f.Pkg().Path()+"."+f.Name()+": "+why)
			}
		}
	}
	slices.Sort(faults)
	return faults
}

// lookUp finds "NAME" or "TYPE.MEMBER" in a package.
func lookUp(pkg *types.Package, name string) types.Object {
	owner, member, isMember := strings.Cut(name, ".")
	o := pkg.Scope().Lookup(owner)
	if o == nil || !isMember {
		return o
	}
	found, _, _ := types.LookupFieldOrMethod(o.Type(), true, pkg, member)
	return found
}

// origin returns the generic form of an instantiated object.
func origin(o types.Object) types.Object {
	switch o := o.(type) {
	case *types.Func:
		return o.Origin()
	case *types.Var:
		return o.Origin()
	}
	return o
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
