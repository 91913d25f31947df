package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress is a line with a bar on a terminal.
type progress struct {
	out   io.Writer // nil: not a terminal
	title string
	tenth int // last shown
}

const (
	titleWidth = 32
	barWidth   = 30
	lineWidth  = titleWidth + barWidth + len(" [] 100.0 %") // less than the 80 columns of a terminal
)

func newProgress(out io.Writer, title string) *progress {
	p := &progress{title: title, tenth: -1}
	if f, ok := out.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.out = out
		}
	}
	return p
}

// show draws the bar if it has grown by a tenth of a percent.
func (p *progress) show(at, of time.Duration) {
	tenth := int(1000 * at.Seconds() / of.Seconds())
	if p.out == nil || tenth == p.tenth {
		return
	}
	p.tenth = tenth
	full := barWidth * tenth / 1000
	bar := strings.Repeat("=", full) + strings.Repeat(" ", barWidth-full)
	fmt.Fprintf(p.out, "\r%-*.*s [%s] %5.1f %%", titleWidth, titleWidth, p.title, bar, float64(tenth)/10)
}

func (p *progress) clear() {
	if p.out != nil {
		fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", lineWidth))
	}
}
