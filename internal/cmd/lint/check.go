package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	codeWidth    = 120
	commentWidth = 100
	testLines    = 120
	folderFiles  = 40
)

// realTime are the folders whose tests may sleep in real time, each with the reason.
var realTime = map[string]string{
	"bench":      "measures real connections",
	"interop":    "talks to other programs",
	"cross/arm":  "talks to emulated boards",
	"fileupload": "memory of real transfers",
}

// checkFolder returns the faults in the Go files of one folder, by name.
func checkFolder(sources map[string][]byte) (faults []fault, err error) {
	faults = crowded(sources)
	fset := token.NewFileSet()
	parsed, fake := map[string]*ast.File{}, false
	for file, source := range sources {
		f, err := parser.ParseFile(fset, file, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed[file] = f
		fake = fake || usesFakeTime(f)
	}
	for file, f := range parsed {
		c := &checker{fset: fset, file: file}
		c.width(f, string(sources[file]))
		c.locks(f)
		c.order(f)
		if isTestFile(file) {
			c.sleep(f, fake)
			c.length(f)
		}
		faults = append(faults, c.faults...)
	}
	slices.SortFunc(faults, func(a, b fault) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	return faults, nil
}

// crowded reports a folder with too many files that are not tests.
func crowded(sources map[string][]byte) []fault {
	files := slices.DeleteFunc(slices.Sorted(maps.Keys(sources)), isTestFile)
	if len(files) <= folderFiles {
		return nil
	}
	text := fmt.Sprintf("folder of %d Go files without tests, at most %d", len(files), folderFiles)
	return []fault{{"files", files[folderFiles], 1, text}}
}

func isTestFile(file string) bool { return strings.HasSuffix(file, "_test.go") }

type checker struct {
	fset   *token.FileSet
	file   string
	faults []fault
}

func (c *checker) report(rule string, line int, format string, args ...any) {
	c.faults = append(c.faults, fault{rule, c.file, line, fmt.Sprintf(format, args...)})
}

func (c *checker) line(n ast.Node) int { return c.fset.Position(n.Pos()).Line }

// width checks every line except directives and the expected output of examples, which cannot be
// broken. An indented line of a comment, such as code or a table, may be as wide as code.
func (c *checker) width(file *ast.File, source string) {
	comments, exempt := map[int]bool{}, map[int]bool{}
	mark := func(lines map[int]bool, from, to token.Pos) {
		for line := c.fset.Position(from).Line; line <= c.fset.Position(to).Line; line++ {
			lines[line] = true
		}
	}
	for _, group := range file.Comments {
		if isOutput(group.Text()) {
			mark(exempt, group.Pos(), group.End())
		}
		mark(comments, group.Pos(), group.End())
	}
	for i, text := range strings.Split(source, "\n") {
		trimmed := strings.TrimSpace(text)
		if exempt[i+1] || strings.HasPrefix(trimmed, "//go:") {
			continue
		}
		limit, what := codeWidth, "code"
		prose, isComment := strings.CutPrefix(trimmed, "// ")
		if comments[i+1] && isComment && strings.Contains(prose, " ") {
			limit, what = commentWidth, "comment"
		}
		if n := utf8.RuneCountInString(strings.TrimSuffix(text, "\r")); n > limit {
			c.report("width", i+1, "%s of %d columns, at most %d", what, n, limit)
		}
	}
}

// isOutput reports whether a comment is the expected output of an example.
func isOutput(text string) bool {
	text = strings.ToLower(text)
	return strings.HasPrefix(text, "output:") || strings.HasPrefix(text, "unordered output:")
}

// locks checks every function. A function literal that is deferred or called at once belongs to the
// enclosing function. Any other literal is checked on its own, because it runs at another time.
func (c *checker) locks(file *ast.File) {
	within := map[*ast.FuncLit]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if literal, ok := n.Fun.(*ast.FuncLit); ok {
				_, known := within[literal]
				within[literal] = !known
			}
		case *ast.GoStmt:
			if literal, ok := n.Call.Fun.(*ast.FuncLit); ok {
				within[literal] = false
			}
		}
		return true
	})
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil {
				receiver := ""
				if n.Recv != nil && len(n.Recv.List[0].Names) > 0 {
					receiver = n.Recv.List[0].Names[0].Name
				}
				c.function(n.Name.Name, receiver, n.Body, within)
			}
		case *ast.FuncLit:
			if !within[n] {
				c.function("a function literal", "", n.Body, within)
			}
		}
		return true
	})
}

// function follows the calls of Lock and Unlock in one function, in the order of the source.
func (c *checker) function(name, receiver string, body *ast.BlockStmt, within map[*ast.FuncLit]bool) {
	locked := map[string]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return within[n]
		case *ast.CallExpr:
			mutex, call, ok := lockCall(n)
			switch {
			case !ok:
			case call == "Unlock" || call == "RUnlock":
				if !locked[mutex] {
					c.report("locked", c.line(n), "%s unlocks %s, which it did not lock", name, mutex)
				}
			default:
				if strings.HasSuffix(name, "Locked") && receiver != "" && strings.HasPrefix(mutex, receiver+".") {
					c.report("locked", c.line(n), "%s locks %s, which its caller holds", name, mutex)
				}
				locked[mutex] = true
			}
		}
		return true
	})
}

// lockCall reads a call such as c.mu.Lock().
func lockCall(n *ast.CallExpr) (mutex, call string, ok bool) {
	selector, isSelector := n.Fun.(*ast.SelectorExpr)
	if !isSelector || len(n.Args) > 0 {
		return "", "", false
	}
	switch selector.Sel.Name {
	case "Lock", "RLock", "TryLock", "TryRLock", "Unlock", "RUnlock":
		return types.ExprString(selector.X), selector.Sel.Name, true
	}
	return "", "", false
}

// order checks lists of operands, such as return x, f(&x). The language leaves open whether x is
// read before the call changes it, and compilers differ.
func (c *checker) order(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ReturnStmt:
			c.operands(n.Results)
		case *ast.AssignStmt:
			c.operands(n.Rhs)
		case *ast.CallExpr:
			c.operands(n.Args)
		}
		return true
	})
}

func (c *checker) operands(list []ast.Expr) {
	for i, x := range list {
		variable := types.ExprString(x)
		for j, other := range list {
			if _, named := x.(*ast.Ident); named && i != j && changes(other, variable) {
				c.report("order", c.line(x), "%s may be read before or after %s", variable, types.ExprString(other))
			}
		}
	}
}

// changes reports whether an expression has a call that gets the address of a variable, or an array
// as a whole slice.
func changes(n ast.Expr, variable string) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		for _, arg := range call.Args {
			text := types.ExprString(arg)
			found = found || text == "&"+variable || text == variable+"[:]"
		}
		return true
	})
	return found
}

// sleep checks a test file. fake says that tests of its folder run in fake time. There a helper may
// sleep, and so may a function literal that a test passes on, as to synctest.Test and testkit.Run.
// The body of a test itself, and a literal passed to t.Run, run in real time.
func (c *checker) sleep(file *ast.File, fake bool) {
	if realTime[path.Dir(c.file)] != "" {
		return
	}
	for _, decl := range file.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if ok && function.Body != nil && (!fake || isTest(function.Name.Name)) {
			c.sleepIn(function.Body, fake)
		}
	}
}

func (c *checker) sleepIn(body *ast.BlockStmt, fake bool) {
	inPlace := map[*ast.FuncLit]bool{} // literals that run in real time as well
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return !fake || inPlace[n]
		case *ast.CallExpr:
			if literal, ok := n.Fun.(*ast.FuncLit); ok {
				inPlace[literal] = true
			}
			name := types.ExprString(n.Fun)
			if name == "time.Sleep" {
				c.report("sleep", c.line(n), "time.Sleep outside of fake time")
			}
			for _, arg := range n.Args {
				if literal, ok := arg.(*ast.FuncLit); ok {
					inPlace[literal] = strings.HasSuffix(name, ".Run") && name != "testkit.Run"
				}
			}
		}
		return true
	})
}

// length checks the number of lines of each test function.
func (c *checker) length(file *ast.File) {
	for _, decl := range file.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok || !isTest(function.Name.Name) {
			continue
		}
		begin, end := c.fset.Position(function.Pos()).Line, c.fset.Position(function.End()).Line
		if n := end - begin + 1; n > testLines {
			c.report("length", begin, "%s has %d lines, at most %d: make it a table or several tests", function.Name.Name, n,
				testLines)
		}
	}
}

func isTest(name string) bool {
	for _, prefix := range []string{"Test", "Benchmark", "Fuzz", "Example"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// usesFakeTime reports whether a file runs tests in fake time.
func usesFakeTime(file *ast.File) bool {
	return slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
		p := strings.Trim(i.Path.Value, `"`)
		return p == "testing/synctest" || strings.HasSuffix(p, "/internal/testkit")
	})
}
