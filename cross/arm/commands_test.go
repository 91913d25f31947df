package arm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every documented command that builds a firmware for a board names the size of stacks. The default
// is too small.
func TestCommandsNameTheStackSize(t *testing.T) {
	pages, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("board/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, path := range append(append(pages, sources...), "README.md") {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(b), "\n") {
			if !strings.Contains(line, "tinygo build -target") && !strings.Contains(line, "tinygo flash -target") {
				continue
			}
			commands++
			want := "-stack-size=" + stackSize
			switch {
			case strings.Contains(line, "-target wasip1"):
				continue // 64 KB by default
			case strings.Contains(path, "tinynet"), strings.Contains(line, "-target pico-w"),
				strings.Contains(line, "-target wioterminal"):
				want = "-stack-size=" + netStackSize
			}
			if !strings.Contains(line, want) {
				t.Errorf("%s: %s\nwithout %s", path, line, want)
			}
		}
	}
	if commands < 4 {
		t.Errorf("%d commands found", commands)
	}
}
