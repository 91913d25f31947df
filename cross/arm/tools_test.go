package arm

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// all enables every architecture.
var all = flag.Bool("all", false, "test every architecture, not only 386, ARMv6 and big-endian MIPS")

// root is the module's folder.
const root = "../.."

const module = "github.com/hubline-iot/hubline"

// need skips the test unless all commands are installed; if the environment requires them, the test
// fails instead.
func need(t *testing.T, require, what string, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if _, err := exec.LookPath(c); err != nil {
			lack(t, require, c+" not found", what)
		}
	}
}

// runs386 tells whether this machine runs programs for 386. Some virtual machines' kernels do not.
var runs386 = sync.OnceValue(func() bool {
	cmd := exec.Command("go", "test", "-run", "^$", "./errfilter")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOARCH=386", "CGO_ENABLED=0")
	return cmd.Run() == nil
})

// need386 skips a test of programs for 386 where they do not run.
func need386(t *testing.T) {
	t.Helper()
	if !runs386() {
		t.Skip("SKIPPED: this machine runs no programs for 386; the suites are NOT verified on 32 bits, but with -all")
	}
}

// long skips a test that builds a lot or emulates another processor, unless the environment or -all
// enables it.
func long(t *testing.T) {
	t.Helper()
	if !*all && os.Getenv("HUBLINE_REQUIRE_ARM") != "1" {
		t.Skip("SKIPPED: takes long; HUBLINE_REQUIRE_ARM=1 go test ./cross/arm runs it")
	}
}

// lack skips or fails the test.
func lack(t *testing.T, require, why, what string) {
	t.Helper()
	text := why + "; " + what + " NOT verified"
	if os.Getenv(require) == "1" {
		t.Fatal(text + " (" + require + "=1)")
	}
	t.Skip("SKIPPED: " + text + " (set " + require + "=1 to fail instead)")
}

// run runs a command in dir, with env added to its environment, and returns its output.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %v: %v\n%s", strings.Join(env, " "), cmd, err, out.String())
	}
	return out.String()
}

// watch makes go test's cache drop the results of this package when a file of the module changes:
// it records the folders that a test reads.
func watch(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "node_modules") {
			return filepath.SkipDir
		}
		_, err = os.ReadDir(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
