package arm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// coreMinor is the Go version whose library the core may use; an older TinyGo cannot build it.
const coreMinor = 23

// tinyGo checks that a recent TinyGo is installed.
func tinyGo(t *testing.T, commands ...string) {
	t.Helper()
	const what = "the builds for boards"
	if raceDetector {
		t.Skip("the run without -race has this test")
	}
	need(t, "HUBLINE_REQUIRE_TINYGO", what, append(commands, "tinygo")...)
	version := run(t, ".", nil, "tinygo", "version")
	m := regexp.MustCompile(`go1\.(\d+)`).FindStringSubmatch(version)
	if m == nil {
		lack(t, "HUBLINE_REQUIRE_TINYGO", "tinygo version says "+strconv.Quote(version), what)
	}
	if minor, _ := strconv.Atoi(m[1]); minor < coreMinor {
		lack(t, "HUBLINE_REQUIRE_TINYGO", "tinygo uses Go 1."+m[1]+", older than 1."+strconv.Itoa(coreMinor), what)
	}
	t.Log(strings.TrimSpace(version))
}

// boardModule copies the core and the boards' programs into a separate module with an old Go
// version, because TinyGo refuses a module with a newer Go version than its own. It copies the test
// files that tests names, by package.
func boardModule(t *testing.T, tests map[string][]string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-tags=tinygo,provisioning", "-deps",
		"-json=ImportPath,Dir,GoFiles,IgnoredGoFiles", "./cross/arm/board/...", "./transport/mqtt/engine/...",
		"./transport/mqtt/nexthub", "./internal/texts", "./internal/scrub", "./retrypolicy/compat/...",
		"./retrypolicy/internal/policytest",
		"./sntp", "./update/edsign", "./update/adusign", "./update/dpsupdate", "./update/handler",
		"./update/httprange")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm")
	out, err := cmd.Output() // boards have packages that go list does not know
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	folder := t.TempDir()
	write(t, filepath.Join(folder, "go.mod"), fmt.Appendf(nil, "module %s\n\ngo 1.%d\n", module, coreMinor))
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir         string
			GoFiles, IgnoredGoFiles []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return folder
		} else if err != nil {
			t.Fatal(err)
		}
		path, own := strings.CutPrefix(p.ImportPath, module+"/")
		if !own {
			continue
		}
		files := p.GoFiles
		for _, name := range p.IgnoredGoFiles { // for runs with standard Go
			if !strings.HasSuffix(name, "_test.go") {
				files = append(files, name)
			}
		}
		files = append(files, tests[path]...)
		for _, name := range files {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(folder, path, name), text)
		}
	}
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
