package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	codeWidth    = 120
	commentWidth = 100
)

// realTime are the folders whose tests may sleep in real time, each with the reason.
var realTime = map[string]string{
	"bench":      "measures real connections",
	"interop":    "talks to other programs",
	"cross/arm":  "talks to emulated boards",
	"fileupload": "memory of real transfers",
}

// checkFolder returns the faults of the Go files of one folder, by name.
func checkFolder(sources map[string][]byte) (faults []fault, err error) {
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
		if strings.HasSuffix(file, "_test.go") {
			c.sleep(f, fake)
		}
		faults = append(faults, c.faults...)
	}
	slices.SortFunc(faults, func(a, b fault) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	return faults, nil
}

type checker struct {
	fset   *token.FileSet
	file   string
	faults []fault
}

func (c *checker) report(rule string, line int, format string, args ...any) {
	c.faults = append(c.faults, fault{rule, c.file, line, fmt.Sprintf(format, args...)})
}

func (c *checker) line(n ast.Node) int { return c.fset.Position(n.Pos()).Line }

// width checks every line but directives. A comment without a space to break at, such as a link, may
// be as long as code.
func (c *checker) width(file *ast.File, source string) {
	comments := map[int]bool{} // lines that hold nothing but a comment
	for _, group := range file.Comments {
		for _, comment := range group.List {
			from, to := c.fset.Position(comment.Pos()), c.fset.Position(comment.End())
			for line := from.Line; line <= to.Line; line++ {
				comments[line] = true
			}
		}
	}
	for i, text := range strings.Split(source, "\n") {
		trimmed := strings.TrimSpace(text)
		if strings.HasPrefix(trimmed, "//go:") {
			continue
		}
		limit, what := codeWidth, "code"
		isComment := comments[i+1] && (strings.HasPrefix(trimmed, "//") || strings.HasPrefix(trimmed, "/*"))
		if isComment && strings.Contains(strings.TrimPrefix(trimmed, "// "), " ") {
			limit, what = commentWidth, "comment"
		}
		if n := utf8.RuneCountInString(strings.TrimSuffix(text, "\r")); n > limit {
			c.report("width", i+1, "%s of %d columns, at most %d", what, n, limit)
		}
	}
}

// locks checks every function. A function literal that is deferred or called at once belongs to the
// function around it; any other stands for itself, because it runs at another time.
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

// sleep checks a test file. fake says that tests of its folder run in fake time. There a helper may
// sleep, and so may a test inside of a function that it passes on, as to synctest.Test; the body of
// a test itself, and of what it passes to t.Run, is in real time.
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
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name := types.ExprString(call.Fun)
		if name == "time.Sleep" {
			c.report("sleep", c.line(call), "time.Sleep outside of fake time")
		}
		_, isLiteral := call.Fun.(*ast.FuncLit)
		return !fake || isLiteral || strings.HasSuffix(name, ".Run")
	})
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
		return p == "testing/synctest" || strings.HasSuffix(p, "/internal/bounded")
	})
}
