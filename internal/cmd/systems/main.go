// Command systems type-checks the module of the working directory, tests included, for other
// systems:
//
//	go run ./internal/cmd/systems windows/386 darwin/arm64
//
// It takes seconds, because nothing is compiled and what functions of other modules do is not
// checked.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	log.SetFlags(0)
	failed := false
	for _, system := range os.Args[1:] {
		faults, err := check(".", system)
		if err != nil {
			log.Fatal(err)
		}
		for _, fault := range faults {
			fmt.Printf("%s: %v\n", system, fault)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// listed is what go list says of a package. That of a test has its import path in brackets behind.
type listed struct {
	ImportPath, Dir, Name string
	GoFiles               []string
	ImportMap             map[string]string // for what is not imported under its own path
	Module                *struct {
		Main      bool
		GoVersion string
	}
}

// check returns the faults of the module in a folder for a system such as "windows/386".
func check(dir, system string) (faults []error, err error) {
	goos, goarch, ok := strings.Cut(system, "/")
	if !ok {
		return nil, fmt.Errorf("%q is no system; give one as windows/386", system)
	}
	cmd := exec.Command("go", "list", "-deps", "-test", "-json=ImportPath,Dir,Name,GoFiles,ImportMap,Module", "./...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list for %s: %w", system, err)
	}
	files, checked := token.NewFileSet(), importer{"unsafe": types.Unsafe}
	seen := map[string]bool{}                           // a package is there once more with its tests
	for d := json.NewDecoder(bytes.NewReader(out)); ; { // each package after those that it imports
		var p listed
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return faults, nil
		case err != nil:
			return nil, err
		case p.ImportPath == "unsafe" || p.Name == "main" && strings.HasSuffix(p.ImportPath, ".test"):
			continue // a main program that go test writes
		}
		config := types.Config{
			Importer: mapped{checked, p.ImportMap}, Sizes: types.SizesFor("gc", goarch),
			IgnoreFuncBodies: p.Module == nil || !p.Module.Main,
			Error: func(err error) {
				if !seen[err.Error()] {
					seen[err.Error()], faults = true, append(faults, err)
				}
			},
		}
		if p.Module != nil && p.Module.GoVersion != "" {
			config.GoVersion = "go" + p.Module.GoVersion
		}
		path, _, _ := strings.Cut(p.ImportPath, " ")
		parsed, err := parse(files, &p)
		if err != nil {
			return nil, err
		}
		checked[p.ImportPath], _ = config.Check(path, files, parsed, nil)
	}
}

func parse(files *token.FileSet, p *listed) (parsed []*ast.File, err error) {
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	return parsed, nil
}

// importer has the packages that were checked, by import path as go list gives it.
type importer map[string]*types.Package

// mapped is the importer of a package with its ImportMap.
type mapped struct {
	importer
	paths map[string]string
}

func (m mapped) Import(path string) (*types.Package, error) {
	if to, ok := m.paths[path]; ok {
		path = to
	}
	if p := m.importer[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s was not checked", path)
}
