package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// faultkinds.txt has the comments of all kinds of faults, as the source has them. To write it
// again: HUBLINE_WRITE=1 go test -run TestTextsOfKinds ./cmd/testhub
func TestTextsOfKinds(t *testing.T) {
	all := append(commentsOf(t, "fault", "Kind", ""), commentsOf(t, "workload", "FaultKind", "workload.")...)
	want := strings.Join(all, "\n") + "\n"
	if os.Getenv("HUBLINE_WRITE") == "1" {
		require.NoError(t, os.WriteFile("faultkinds.txt", []byte(want), 0o600))
		return
	}
	require.Equal(t, want, kindTexts, "faultkinds.txt is stale; the comment of this test says how to write it")
	for _, k := range append(hubKinds(), daemonKinds()...) {
		require.NotEmpty(t, k.Does, k.Kind)
		require.Len(t, k.Inputs, len(k.Fields))
		for i, in := range k.Inputs {
			require.NotEqual(t, "json", in.Type, "%s: %s has no form", k.Kind, k.Fields[i])
			require.NotEmpty(t, in.Want, "%s: %s", k.Kind, k.Fields[i])
			require.Equal(t, in.Type == "choice", len(in.Choices) > 0, "%s: %s", k.Kind, k.Fields[i])
		}
	}
}

// typed are the types in the names of the constants of package workload, which the page leaves out.
var typed = regexp.MustCompile(`\b(?:Fault|Call)([A-Z])`)

// commentsOf returns each constant of a type below testbroker with its comment, in one line.
func commentsOf(t *testing.T, pkg, of, prefix string) (all []string) {
	names := constants(t, pkg+"."+of)
	files, err := filepath.Glob("../../testbroker/" + pkg + "/*.go")
	require.NoError(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range file.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			about := "" // a comment may be about the constants behind it too
			for _, s := range group.Specs {
				spec, ok := s.(*ast.ValueSpec)
				if !ok || !slices.Contains(names, spec.Names[0].Name) {
					continue
				}
				own := spec.Doc.Text()
				if !group.Lparen.IsValid() {
					own = group.Doc.Text()
				}
				about = cmp.Or(strings.Join(strings.Fields(own), " "), about)
				all = append(all, prefix+typed.ReplaceAllString(spec.Names[0].Name+" "+about, "$1"))
			}
		}
	}
	require.Len(t, all, len(names))
	slices.Sort(all)
	return all
}
