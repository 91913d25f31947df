package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A site is a place for one bug: the bytes from begin to end of a file become text.
type site struct {
	pkg, file, function string // file is the path from the module's root
	kind                string
	line, begin, end    int
	text                string
	old, new            string // as shown
}

// String says what a bug is, without its line: it names the bug in equivalent.txt.
func (s site) String() string {
	return fmt.Sprintf("%s %s: %s becomes %s", filepath.ToSlash(s.file), s.function, s.old, s.new)
}

var kinds = []string{"opposite comparison", "moved boundary", "swapped operator", "negated condition", "deleted call",
	"deleted assignment", "**all**"}

// operators are the tables of the first three kinds: what takes the place of an operator.
var operators = []map[token.Token]token.Token{
	{
		token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ,
		token.LEQ: token.GTR,
	},
	{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR},
	{
		token.LAND: token.LOR, token.LOR: token.LAND, token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO,
		token.QUO: token.MUL, token.AND: token.OR, token.OR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL,
	},
}

// find returns the sites in chosen packages, but not in test kits, which import testing, and not in
// programs without tests.
func find(root string, all map[string]*goPackage) (sites []site, err error) {
	for _, path := range sortedKeys(all) {
		p := all[path]
		if !p.chosen || slices.Contains(p.Imports, "testing") || p.Name == "main" && !p.tested() {
			continue
		}
		for _, name := range p.GoFiles {
			source, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			file, err := filepath.Rel(root, filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			f := finder{site: site{pkg: path, file: file}, source: string(source), fset: token.NewFileSet()}
			if err := f.find(); err != nil {
				return nil, err
			}
			sites = append(sites, f.sites...)
		}
	}
	if len(sites) == 0 {
		return nil, errors.New("no place for a bug in these packages")
	}
	return sites, nil
}

// finder finds the sites of one file.
type finder struct {
	site   // what the sites have in common
	source string
	fset   *token.FileSet
	sites  []site
}

func (f *finder) find() error {
	tree, err := parser.ParseFile(f.fset, f.file, f.source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range tree.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
			f.function = d.Name.Name
			ast.Inspect(d.Body, f.visit)
		}
	}
	return nil
}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.negate(n.Cond)
	case *ast.ForStmt:
		f.negate(n.Cond)
		n.Post = nil // without it the loop would not end
	case *ast.BinaryExpr:
		for i, table := range operators {
			if op, ok := table[n.Op]; ok {
				f.add(kinds[i], n, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), op.String())
			}
		}
	case *ast.CallExpr:
		return called(n) != "make" // a capacity changes no result
	case *ast.ExprStmt:
		// Only the race detector notices a missing lock.
		if c, ok := n.X.(*ast.CallExpr); ok && !strings.HasSuffix(called(c), "ock") {
			f.add(kinds[4], n, n.Pos(), n.End(), "")
		}
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			f.add(kinds[5], n, n.Pos(), n.End(), "")
		}
	case *ast.IncDecStmt:
		f.add(kinds[5], n, n.Pos(), n.End(), "")
	}
	return true
}

// negate adds the opposite of a condition. That of a comparison is a table's.
func (f *finder) negate(cond ast.Expr) {
	if b, ok := cond.(*ast.BinaryExpr); cond == nil || ok && operators[0][b.Op] != 0 {
		return
	}
	f.add(kinds[3], cond, cond.Pos(), cond.End(), "!("+f.source[f.offset(cond.Pos()):f.offset(cond.End())]+")")
}

// add adds a bug: the source between from and to, a part of n, becomes text.
func (f *finder) add(kind string, n ast.Node, from, to token.Pos, text string) {
	s := f.site
	s.kind, s.line, s.begin, s.end, s.text = kind, f.fset.Position(from).Line, f.offset(from), f.offset(to), text
	begin, end := f.offset(n.Pos()), f.offset(n.End())
	s.old = oneLine(f.source[begin:end])
	s.new = oneLine(f.source[begin:s.begin] + text + f.source[s.end:end])
	f.sites = append(f.sites, s)
}

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }

// called returns the name of the called function or method.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

func oneLine(code string) string {
	if code = strings.Join(strings.Fields(code), " "); code == "" {
		return "nothing"
	}
	return code
}
