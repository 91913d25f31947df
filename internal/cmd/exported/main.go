// Command exported prints the exported package-level names of each package that a user can import,
// with their number:
//
//	go run ./internal/cmd/exported > docs/exported.txt
//
// .ci/api fails when the file is not what it prints, so that a change shows the names that it adds
// and removes. It is run in the root of a module.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const width = 100 // of a line

func main() {
	if err := list(os.Stdout, "."); err != nil {
		log.Fatal(err)
	}
}

// list prints the packages of the module in folder root.
func list(w io.Writer, root string) error {
	var out strings.Builder
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		if path != root && skipped(path) {
			return fs.SkipDir
		}
		names, err := exported(path)
		if err != nil || len(names) == 0 {
			return err
		}
		rel, err := filepath.Rel(root, path)
		fmt.Fprintf(&out, "%s: %d\n%s\n", filepath.ToSlash(rel), len(names), wrapped(names))
		return err
	})
	if err == nil {
		_, err = io.WriteString(w, out.String())
	}
	return err
}

// skipped reports whether no user can import what is in a folder, or it is another module.
func skipped(path string) bool {
	name := filepath.Base(path)
	if name == "internal" || name == "testdata" || strings.HasPrefix(name, ".") {
		return true
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil
}

// exported returns the sorted names of the package in a folder, of all systems together. It returns
// none for a command.
func exported(folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if f.Name.Name == "main" {
			return nil, nil
		}
		for _, d := range f.Decls {
			for _, name := range declared(d) {
				if ast.IsExported(name) {
					names[name] = true
				}
			}
		}
	}
	var sorted []string
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	return sorted, nil
}

// declared returns the package-level names of a declaration.
func declared(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}

// wrapped returns the names in indented lines.
func wrapped(names []string) string {
	var out strings.Builder
	line := " "
	for _, name := range names {
		if len(line)+1+len(name) > width {
			out.WriteString(line + "\n")
			line = " "
		}
		line += " " + name
	}
	out.WriteString(line + "\n")
	return out.String()
}
