package main

import (
	"bytes"
	"fmt"
	"strings"
)

// figures counts results.
type figures struct {
	all, caught, bare, survived, equivalent, broken int
}

func (f *figures) add(r *row) {
	f.all++
	switch r.result {
	case caught:
		f.caught++
		if r.bare {
			f.bare++
		}
	case survived:
		f.survived++
	case equivalent:
		f.equivalent++
	case broken:
		f.broken++
	}
}

func (f figures) String() string {
	return fmt.Sprintf("%d mutations: %d caught (%d by a bare time-out), %d survived, %d equivalent, %d broken",
		f.all, f.caught, f.bare, f.survived, f.equivalent, f.broken)
}

// report returns the page with the figures of rows, which are sorted by area.
func report(rows []row) []byte {
	byArea := map[string]*figures{}
	var sum figures
	for i := range rows {
		f := byArea[rows[i].area]
		if f == nil {
			f = &figures{}
			byArea[rows[i].area] = f
		}
		f.add(&rows[i])
		sum.add(&rows[i])
	}
	var b bytes.Buffer
	b.WriteString(`# Mutations

A mutation is a plausible bug, put into the code to see whether a test fails. The tables are in ` +
		`[internal/cmd/mutate](../internal/cmd/mutate), one file for each area. Each row names the tests that ` +
		"must notice it.\n\n" + "`go run ./internal/cmd/mutate`" +
		` runs them one at a time with an overlay, so no file changes, and fails when a mutation survives. With ` +
		"`-write docs/mutations.md`" + ` it writes this page. The plain tests check that each row still applies to the code.

| area | mutations | caught | survived | equivalent |
|--|--:|--:|--:|--:|
`)
	for _, area := range areas() {
		if f := byArea[area]; f != nil {
			fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", area, f.all, f.caught, f.survived+f.broken, f.equivalent)
		}
	}
	fmt.Fprintf(&b, "| **all** | **%d** | **%d** | **%d** | **%d** |\n", sum.all, sum.caught, sum.survived+sum.broken,
		sum.equivalent)
	if sum.equivalent > 0 {
		b.WriteString("\n## Equivalent mutations\n\nNo test can tell these from the code as it is.\n\n| file | mutation | " +
			"reason |\n|--|--|--|\n")
		for i := range rows {
			if r := &rows[i]; r.result == equivalent {
				fmt.Fprintf(&b, "| %s | %s becomes %s | %s |\n", r.File, cell(r.Old), cell(r.New), strings.ReplaceAll(r.Equivalent,
					"|", `\|`))
			}
		}
	}
	return b.Bytes()
}

// cell formats code as a cell of a Markdown table.
func cell(code string) string {
	code = strings.Join(strings.Fields(code), " ")
	if code == "" {
		return "nothing"
	}
	return "`" + strings.ReplaceAll(code, "|", `\|`) + "`"
}
