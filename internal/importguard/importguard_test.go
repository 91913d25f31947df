package importguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/hubline-iot/hubline"

// core are the packages that run on boards, as far as they exist.
var core = existing("./transport", "./errfilter", "./retrypolicy", "./retrypolicy/budget", "./retrypolicy/compat",
	"./device", "./transport/mqtt/engine", "./internal/mqttwire", "./internal/nextwire",
	"./transport/mqtt/dialect",
	"./internal/statuscode", "./internal/reconnect", "./internal/times",
	"./provisioning", "./provisioning/dpsengine", "./sntp", "./update", "./update/agent",
	"./update/dpsupdate", "./update/handler", "./update/httprange")

// boards are the packages that programs for boards may have besides: their builds for other systems
// import what is not for boards.
var boards = existing("./transport/mqtt/nexthub")

// allowed lists the packages that the core may import without a grant.
//
// encoding/hex and net/url are small themselves but import fmt, so they are not in it. Write the
// four-line loop instead.
var allowed = []string{
	"bufio", "bytes", "cmp", "container/list", "context", "crypto/hmac", "crypto/sha256", "crypto/subtle",
	"encoding/base64", "encoding/binary", "errors", "io",
	"iter", "maps", "math/bits", "math/rand/v2", "slices", "strconv", "strings", "sync", "sync/atomic", "time",
	"unicode/utf8",
}

// costly lists the packages that the core may import with a grant.
var costly = map[string]string{
	"crypto/aes":    "tables in flash",
	"crypto/cipher": "comes with crypto/aes",
	"hash/crc32":    "a table in RAM",
	"hash/maphash":  "a board may have no source of entropy",
	"math":          "soft float on most boards; math.Ldexp is the cheap one",
	"sort":          "package slices is the smaller one",
	"syscall":       "boards have no system",
	"unsafe":        "layout differs between boards",
}

const jitters = "published jitters and limiters are defined with powers and roots, linked only where one is used"

// grants are the granted imports and their reasons.
var grants = []struct{ importer, costly, reason string }{
	{module + "/retrypolicy", "math", jitters},
	{module + "/retrypolicy/internal/kit", "math", jitters},
	{module + "/retrypolicy/budget", "math", jitters},
	{module + "/retrypolicy/compat", "math", jitters},
	{module + "/retrypolicy", "syscall", "the numbers of refused and lost connections, where there is a system; package " +
		"time imports it there already"},
	{module + "/internal/times", "math", "Float64bits, and no arithmetic: that is in integers"},
	{module + "/internal/errchain", "unsafe", "compares the two words of an interface, only in builds by TinyGo"},
	{module + "/internal/messageid", "hash/maphash", "its seed is the runtime's entropy; not in builds by TinyGo"},
}

// forbidden gives some other packages a better message than "not in the list".
var forbidden = map[string]string{
	"crypto/rand":   "panics on boards without a random number source; take a source as a value",
	"crypto/tls":    "2.5 MB on Linux, a stub on boards; it belongs to a transport or the board's dial function",
	"crypto/x509":   "254 KB flash; it belongs to a transport's options",
	"encoding/hex":  "imports fmt; write the loop",
	"encoding/json": "122 KB flash; bodies are bytes that the user brings",
	"fmt":           "53 KB flash; use strconv and errors.New",
	"log":           "the core has no log; it reports events",
	"log/slog":      "145 KB flash; the core has no log, it reports events",
	"math/big":      "large; only tests need it",
	"net":           "75 KB flash; the board brings the connection",
	"net/http":      "270 KB flash; it belongs to the HTTP transport",
	"net/url":       "64 KB flash; package internal/texts escapes",
	"os":            "boards have no files and no processes",
	"os/signal":     "boards have no signals",
	"reflect":       "partial on boards; use type assertions",
	"regexp":        "large; write the loop",
	"runtime/debug": "absent on boards",
	"testing":       "only tests need it",
	"unique":        "absent on boards",
	"weak":          "absent on boards",
}

// heavy packages must not be linked into a program through the core, neither directly nor through
// another package.
var heavy = []string{"crypto/tls", "crypto/x509", "encoding/json", "fmt", "log/slog", "net", "net/http"}

// platforms are the build configurations that select files of the core.
var platforms = []struct{ goos, goarch, tags string }{
	{"linux", "amd64", ""},
	{"linux", "arm", ""},
	{"linux", "386", ""},
	{"linux", "arm", "tinygo"}, // the view of the compiler for boards
	{"windows", "amd64", ""},
}

// goPackage is the output of go list.
type goPackage struct {
	ImportPath string
	Dir        string
	Standard   bool
	GoFiles    []string
	Imports    []string // of its own files, without tests
	Deps       []string // all transitive imports
	Export     string
}

// judge returns what is wrong with importer's import of path, or "" if it is allowed.
func judge(importer, path string) string {
	if slices.Contains(allowed, path) {
		return ""
	}
	if why, ok := forbidden[path]; ok {
		return "forbidden: " + why
	}
	cost, ok := costly[path]
	if !ok {
		return "not in the list of what the core may import"
	}
	for _, g := range grants {
		if g.importer == importer && g.costly == path && g.reason != "" {
			return ""
		}
	}
	return "needs a reason in grants: " + cost
}

func TestCoreImportsOnlyWhatBoardsCarry(t *testing.T) {
	for _, p := range platforms {
		t.Run(strings.Trim(p.goos+"/"+p.goarch+" "+p.tags, " "), func(t *testing.T) {
			t.Parallel()
			own, all := 0, core
			if p.tags == "tinygo" {
				all = slices.Concat(core, boards)
			}
			for _, pkg := range list(t, p.goos, p.goarch, []string{"-deps", "-tags=" + p.tags}, all...) {
				switch {
				case pkg.Standard:
					if slices.Contains(heavy, pkg.ImportPath) {
						t.Errorf("the core leads to %s", pkg.ImportPath)
					}
				case !isOwn(pkg.ImportPath):
					t.Errorf("the core leads to %s, which is neither of this module nor of the standard library", pkg.ImportPath)
				default:
					own++
					for _, path := range pkg.Imports {
						if isOwn(path) {
							continue // judged separately
						}
						if wrong := judge(pkg.ImportPath, path); wrong != "" {
							t.Errorf("%s imports %s: %s", pkg.ImportPath, path, wrong)
						}
					}
				}
			}
			if own < len(core) {
				t.Errorf("%d packages of this module seen, want %d at least", own, len(core))
			}
		})
	}
}

// The list itself is light: no package in it imports a heavy one.
func TestAllowedListIsLight(t *testing.T) {
	var all []string
	all = append(all, allowed...)
	for path := range costly {
		all = append(all, path)
	}
	for _, pkg := range list(t, "linux", "arm", nil, all...) {
		for _, dep := range pkg.Deps {
			if slices.Contains(heavy, dep) {
				t.Errorf("%s leads to %s; take it out of the list", pkg.ImportPath, dep)
			}
		}
	}
	for _, path := range allowed {
		if forbidden[path] != "" || costly[path] != "" {
			t.Errorf("%s is in two lists", path)
		}
	}
	for _, g := range grants {
		if costly[g.costly] == "" || g.reason == "" {
			t.Errorf("grant of %s to %s: not a costly package, or no reason", g.costly, g.importer)
		}
	}
}

func TestJudge(t *testing.T) {
	for path, want := range map[string]string{
		"time": "", "math/bits": "", "math/rand/v2": "", "fmt": "forbidden: 53 KB", "net": "forbidden", "os": "forbidden",
		"reflect": "forbidden", "crypto/tls": "forbidden",
		"math": "needs a reason", "math/rand": "not in the list", "html/template": "not in the list",
		"github.com/stretchr/testify/assert": "not in the list", "unsafe": "needs a reason",
	} {
		if got := judge(module+"/nobody", path); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("judge(%s) = %q, want %q", path, got, want)
		}
	}
}

// layers are which packages may lead to which, inside the module.
var layers = []struct {
	name     string
	packages []string
	barred   []string // packages and all below them
	but      []string // packages alone
	why      string
}{
	{
		"the contract knows none of its users", []string{"./transport"},
		[]string{"device", "errfilter", "retrypolicy", "testbroker", "transport/mqtt", "transport/amqp",
			"transport/http", "transport/transporttest", "twin"}, nil,
		"imports go one way",
	},
	{
		"filter and policies know the contract alone", []string{"./errfilter", "./retrypolicy", "./retrypolicy/budget",
			"./retrypolicy/compat"},
		[]string{"device", "testbroker", "transport", "twin"}, []string{"transport"},
		"imports go one way",
	},
	{
		"requests under a policy know the errors of package net, and no protocol", []string{"./retrypolicy/httpretry"},
		[]string{"device", "testbroker", "transport", "twin"}, []string{"transport", "transport/neterr"},
		"imports go one way",
	},
	{
		"the core of the policies knows none of its additions", []string{"./retrypolicy"},
		[]string{"retrypolicy/budget", "retrypolicy/compat", "retrypolicy/httpretry"}, nil,
		"boards would link them",
	},
	{
		"the client knows no protocol", []string{"./device"},
		[]string{"transport", "testbroker", "outbox", "fileupload", "provisioning", "twin"}, []string{"transport"},
		"the user brings the transport as a value, so an unused protocol is never linked",
	},
	{
		"the engine of boards shares with the other one what hubs say, and nothing else", existing("./transport/mqtt/engine"),
		[]string{"transport/mqtt"}, []string{"transport/mqtt/dialect", "internal/mqttwire"},
		"boards would link TLS and paho",
	},
	{
		"what clients of MQTT share knows no engine", existing("./internal/mqttwire"),
		[]string{"transport", "device"}, []string{"transport"},
		"imports go one way",
	},
	{
		"WebSocket and MQTT on our engine do not bring the other one", existing("./transport/mqtt",
			"./transport/websocket"),
		[]string{"github.com/eclipse/paho.mqtt.golang"}, nil,
		"an engine that is not used is not linked",
	},
	{
		"the emulator shares nothing with the client", existing("./testbroker/..."),
		[]string{"device", "transport", "errfilter", "retrypolicy", "twin"}, nil,
		"both sides would share a mistake",
	},
	{
		"uploads go beside any transport, and bring none", existing("./fileupload"),
		[]string{"device", "testbroker", "transport"},
		[]string{"transport", "transport/neterr", "transport/netopt"},
		"a program that uploads files chooses what carries its telemetry",
	},
	{
		"the clock is set beside any client, and is linked only where it is used", existing("./sntp"),
		[]string{"device", "testbroker", "transport", "provisioning"}, []string{"transport"},
		"boards pay for what they use",
	},
	{
		"updates come beside any client, and verify with any key", existing("./update"),
		[]string{"device", "testbroker", "transport", "provisioning", "update"}, []string{"transport", "update"},
		"boards pay for what they use",
	},
	{
		"the core leads to no option of boards", []string{"./device", "./transport/mqtt/engine", "./provisioning"},
		[]string{"sntp", "update"}, nil,
		"boards pay for what they use",
	},
	{
		"modules are made beside any transport, and bring none", existing("./edge"), []string{"testbroker", "transport"},
		[]string{"transport", "transport/neterr", "transport/netopt"}, "a program chooses its transport",
	},
	{
		"transports report failures and leave retries to the client", existing("./transport/mqtt/...",
			"./transport/amqp/...", "./transport/http/...", "./transport/netproxy/...", "./transport/netopt/..."),
		[]string{"retrypolicy", "errfilter"}, nil,
		"what happens after a failure is decided in one place",
	},
	{
		"transports know neither client nor emulator", existing("./transport/mqtt/...", "./transport/amqp/...",
			"./transport/http/..."),
		[]string{"device", "testbroker", "transport/transporttest", "twin"}, nil,
		"imports go one way",
	},
	{
		"typed twins and methods know the client and no protocol",
		existing("./twin"),
		[]string{"transport", "testbroker"}, []string{"transport"},
		"they are the same over each",
	},
	{
		"the provisioning client knows no protocol, and not the device client", []string{"./provisioning"},
		[]string{"device", "transport", "testbroker", "provisioning"}, []string{"transport"},
		"the user brings the carrier as a value, so an unused protocol is never linked",
	},
	{
		"carriers of provisioning know neither the device client nor the emulator, and not each other",
		existing("./provisioning/dpshttp", "./provisioning/dpsmqtt", "./provisioning/dpsengine",
			"./provisioning/dpsamqp"),
		[]string{"device", "testbroker", "provisioning"},
		[]string{"provisioning", "provisioning/dpsengine"},
		"imports go one way",
	},
	{
		"firmware without models has no JSON", existing("./cross/arm/..."),
		[]string{"twin"}, nil,
		"it links encoding/json, 122 KB flash",
	},
}

func TestLayers(t *testing.T) {
	for _, layer := range layers {
		t.Run(layer.name, func(t *testing.T) {
			t.Parallel()
			if len(layer.packages) == 0 {
				t.Log("no such package yet")
				return
			}
			for _, pkg := range list(t, "linux", "amd64", nil, layer.packages...) {
				for _, dep := range pkg.Deps {
					path, own := strings.CutPrefix(dep, module+"/")
					if !own && !strings.Contains(dep, ".") || slices.Contains(layer.but, path) { // of the standard library, or granted
						continue
					}
					for _, barred := range layer.barred {
						if path == barred || strings.HasPrefix(path, barred+"/") {
							t.Errorf("%s leads to %s: %s", pkg.ImportPath, dep, layer.why)
						}
					}
				}
			}
		})
	}
}

// No package outside of tests leads to test tools.
func TestNoPackageLeadsToTestTools(t *testing.T) {
	for _, pkg := range list(t, "linux", "amd64", nil, "./...") {
		path := strings.TrimPrefix(pkg.ImportPath, module+"/")
		if path == "transport/transporttest" || path == "internal/hubfixture" || path == "internal/testkit" ||
			path == "retrypolicy/internal/policytest" || path == "testbroker/internal/hubtest" ||
			strings.HasPrefix(path, "examples/") {
			continue
		}
		for _, dep := range pkg.Deps {
			if strings.HasPrefix(dep, "github.com/stretchr/testify") || dep == "testing" &&
				!strings.HasPrefix(path, "testbroker") {
				t.Errorf("%s leads to %s", pkg.ImportPath, dep)
			}
		}
	}
}

func isOwn(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

// existing returns the patterns whose folder has Go code other than tests.
func existing(patterns ...string) []string {
	var found []string
	for _, p := range patterns {
		files, _ := filepath.Glob(filepath.Join(root, strings.TrimSuffix(p, "/..."), "*.go"))
		if slices.ContainsFunc(files, func(name string) bool { return !strings.HasSuffix(name, "_test.go") }) {
			found = append(found, p)
		}
	}
	return found
}

// root is the module's folder, as seen from a test of this package.
const root = "../.."

// list runs go list for one platform.
func list(t *testing.T, goos, goarch string, flags []string, patterns ...string) []goPackage {
	t.Helper()
	args := append([]string{"list", "-json=ImportPath,Dir,Standard,GoFiles,Imports,Deps,Export"}, flags...)
	cmd := exec.Command("go", append(args, patterns...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, stderr.String())
	}
	var all []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if !p.Standard && isOwn(p.ImportPath) {
			// Opening the folders makes go test's cache depend on them: it keeps a result of this test only
			// as long as they stay the same.
			if _, err := os.ReadDir(p.Dir); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		t.Fatalf("%v: nothing", cmd)
	}
	return all
}
