package main

import (
	"fmt"
	"strings"
	"testing"
)

// Each rule finds its own faults and no others.
func TestRules(t *testing.T) {
	const test, code = "device/a_test.go", "device/a.go"
	long := strings.Repeat("long word ", 11)
	for _, probe := range []struct{ name, file, source, want string }{
		{"short lines", code, "// F does.\nfunc F() {}", ""},
		{"a long comment", code, "// " + long, "width"},
		{"a long link in a comment", code, "// https://" + strings.Repeat("x", 105), ""},
		{"a directive", code, "//go:generate " + long, ""},
		{"a table in a comment", code, "// T:\n//\n//\t" + long, ""},
		{"expected output", code, "func f() {\n\t// Output:\n\t// " + long + "\n}", ""},
		{"code of 110 columns", code, `var _ = "` + strings.Repeat("x", 100) + `"`, ""},
		{"code of 130 columns", code, `var _ = "` + strings.Repeat("x", 120) + `"`, "width"},
		{"a raw string", code, "var _ = `" + strings.Repeat("x", 120) + "`", "width"},
		{"lock and unlock", code, "func (c *C) f() { c.mu.Lock(); c.mu.Unlock() }", ""},
		{"deferred", code, "func (c *C) f() { c.mu.Lock(); defer func() { c.mu.Unlock() }() }", ""},
		{"the caller's mutex", code, "func (c *C) f() { c.mu.Unlock(); c.mu.Lock() }", "unlocks c.mu"},
		{"on another goroutine", code, "func (c *C) f() { c.mu.Lock(); go func() { c.mu.Unlock() }() }", "literal unlocks"},
		{"Locked needs the lock", code, "func (c *C) fLocked() { c.mu.Lock(); c.mu.Unlock() }", "locks c.mu"},
		{"Locked may lock others", code, "func (c *C) fLocked(o *O) { o.mu.Lock(); o.mu.Unlock() }", ""},
		{"a result and its address", code, "func f() (x T, err error) { return x, g(&x) }", "order"},
		{"an array and its slice", code, "func f() (x [4]byte, n int) { return x, 1 + copy(x[:], y) }", "order"},
		{"an argument and its address", code, "func f() { g(x, h(&x)) }", "order"},
		{"addresses in one call", code, "func f() { x, err := y, g(&z); g(x, &x) }", ""},
		{"sleep in real time", test, `func TestX(t *testing.T) { time.Sleep(1) }`, "sleep"},
		{"sleep in a bubble", test, `import "testing/synctest"
func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }`, ""},
		{"sleep in a bubble of its own", test, `import "x/internal/testkit"
func TestX(t *testing.T) { testkit.Run(t, "", func(t *testing.T) { time.Sleep(1) }) }`, ""},
		{"sleep beside a bubble", test, `import "testing/synctest"
func TestX(t *testing.T) { t.Run("", func(t *testing.T) { time.Sleep(1) }) }`, "sleep"},
		{"sleep of real sockets", "interop/a_test.go", `func TestX(t *testing.T) { time.Sleep(1) }`, ""},
		{"sleep outside of tests", code, `func x() { time.Sleep(1) }`, ""},
		{"a test of 120 lines", test, "func TestX(t *testing.T) {" + strings.Repeat("\n", 119) + "}", ""},
		{"a test of 121 lines", test, "func TestX(t *testing.T) {" + strings.Repeat("\n", 120) + "}", "TestX has 121 lines"},
		{"a helper of 121 lines", test, "func x() {" + strings.Repeat("\n", 120) + "}", ""},
	} {
		t.Run(probe.name, func(t *testing.T) {
			faults, err := checkFolder(map[string][]byte{probe.file: []byte("package p\n" + probe.source)})
			if err != nil {
				t.Fatal(err)
			}
			if probe.want == "" && len(faults) != 0 {
				t.Errorf("found %v", faults)
			}
			if probe.want != "" && (len(faults) != 1 || !strings.Contains(faults[0].rule+" "+faults[0].text, probe.want)) {
				t.Errorf("found %v, want one with %q", faults, probe.want)
			}
		})
	}
}

func TestAFolderHasAtMostFortyFiles(t *testing.T) {
	sources := map[string][]byte{"device/a_test.go": []byte("package p")}
	for i := range 40 {
		sources[fmt.Sprintf("device/a%d.go", i)] = []byte("package p")
	}
	if faults, err := checkFolder(sources); err != nil || len(faults) != 0 {
		t.Errorf("40 files: %v %v", faults, err)
	}
	sources["device/b.go"] = []byte("package p")
	if faults, err := checkFolder(sources); err != nil || len(faults) != 1 || faults[0].rule != "files" {
		t.Errorf("41 files: %v %v", faults, err)
	}
}
