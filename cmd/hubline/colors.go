package main

import (
	"fmt"
	"runtime"
	"strings"
	"unicode/utf8"
)

// color is the number of a terminal's colour (ECMA-48, SGR).
type color int

const (
	faint  color = 2
	red    color = 31
	green  color = 32
	yellow color = 33
	cyan   color = 36
)

// palette paints words, if it is on.
type palette bool

// palette returns the colours of the output: none in a pipe, with NO_COLOR (no-color.org), and at
// terminals that do not know them.
func (t *tool) palette() palette {
	getenv := t.world.Getenv
	plain := getenv("NO_COLOR") != "" || getenv("TERM") == "dumb" ||
		runtime.GOOS == "windows" && getenv("WT_SESSION") == ""
	return palette(t.outTerminal && !plain)
}

func (p palette) paint(c color, text string) string {
	if !p || c == 0 || text == "" {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", c, text)
}

// columns prints lines as a table whose length nobody knows: a column is as wide as its widest cell
// so far.
type columns struct {
	colors []color // of the columns; 0: none
	widths []int
}

// line returns the line of these cells. Control characters are replaced, and further lines of the
// last cell begin below the first.
func (c *columns) line(p palette, cells ...string) string {
	if c.widths == nil {
		c.widths = make([]int, len(c.colors))
	}
	var b strings.Builder
	indent := 0
	for i, cell := range cells {
		cell = visible(cell)
		if i == len(cells)-1 {
			cell = strings.ReplaceAll(strings.TrimRight(cell, "\n"), "\n", "\n"+strings.Repeat(" ", indent))
			b.WriteString(p.paint(c.colors[i], cell))
			break
		}
		cell = strings.NewReplacer("\n", " ", "\t", " ").Replace(cell)
		n := utf8.RuneCountInString(cell)
		c.widths[i] = max(c.widths[i], n)
		if c.widths[i] == 0 {
			continue
		}
		b.WriteString(p.paint(c.colors[i], cell) + strings.Repeat(" ", c.widths[i]-n+2))
		indent += c.widths[i] + 2
	}
	return b.String() + "\n"
}
