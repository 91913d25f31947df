package arm

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// architecture is a kind of Linux board.
type architecture struct {
	name, arch string
	setting    string // GOARM or GOMIPS, empty for none
	emulator   string // emulator of its processor; empty: this machine runs it
	cpu        string // QEMU_CPU: the emulator's default is the richest processor, which would hide a wrong setting
	machine    elf.Machine
	skip       string
	tried      extent // without -all
}

// extent is how much is tried on an architecture. Each has the ones above it.
type extent uint8

const (
	triesNothing  extent = iota // -all does: another one has its word size, alignment and byte order
	triesStart                  // it is built and starts
	triesFormulas               // what byte order and floating point can break
	triesAll                    // what 32 bits can break, too
)

// socketError are the tests that fail only because QEMU 7.2 for MIPS reports a failed connect with
// this machine's errno, which differs from MIPS's.
const socketError = "TestADeadBackendTripsThrottleAndCharges"

var architectures = []architecture{
	{"386", "386", "", "", "", elf.EM_386, "", triesAll},
	{"armv5", "arm", "GOARM=5", "qemu-arm-static", "arm926", elf.EM_ARM, "", triesNothing}, // software floats
	{"armv6", "arm", "GOARM=6", "qemu-arm-static", "arm1176", elf.EM_ARM, "", triesFormulas},
	{"armv7", "arm", "GOARM=7", "qemu-arm-static", "cortex-a7", elf.EM_ARM, "", triesNothing},
	{"arm64", "arm64", "", "qemu-aarch64-static", "cortex-a53", elf.EM_AARCH64, "", triesStart},
	{"mipsle", "mipsle", "GOMIPS=softfloat", "qemu-mipsel-static", "", elf.EM_MIPS, socketError, triesNothing},
	{"mips", "mips", "GOMIPS=softfloat", "qemu-mips-static", "", elf.EM_MIPS, socketError, triesFormulas}, // big endian
	{"riscv64", "riscv64", "", "qemu-riscv64-static", "", elf.EM_RISCV, "", triesNothing},
}

func (a *architecture) env() []string {
	env := []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + a.arch}
	if a.setting != "" {
		env = append(env, a.setting)
	}
	if a.cpu != "" {
		env = append(env, "QEMU_CPU="+a.cpu)
	}
	return env
}

// suites are the packages whose tests must pass on every processor: the core and both MQTT engines.
var suites = []string{
	"./device", "./transport", "./errfilter", "./retrypolicy/...", "./internal/texts", "./internal/times",
	"./sntp", "./update", "./update/edsign",
	"./update/httprange", "./cross/arm/board/wifi", "./cross/arm/board/flashlog",
	"./transport/mqtt", "./transport/mqtt/engine/...", "./internal/mqttwire", "./internal/amqpwire",
}

// formulas are the packages that count, compare and convert, and the formats of wires and flash.
var formulas = []string{"./errfilter", "./retrypolicy", "./retrypolicy/compat", "./internal/times",
	"./internal/mqttwire", "./internal/amqpwire", "./sntp", "./cross/arm/board/flashlog"}

// modemSuite are tests of package atmodem. Under emulation those with TLS would take minutes.
const (
	modemSuite     = "./cross/arm/board/atmodem"
	emulatedModems = "^(TestClockTexts|TestFields|TestLines.*|TestAnswers.*|TestDialects.*|TestTheSIM|FuzzAnswers)$|" +
		"^TestFirmwareSends.*$/^(SIM7x00|BG9x)$"
)

// The tests of the core and of MQTT on other processors. Emulation is 2 to 50 times slower, so it
// shows faults and not speed. Without -all it tries fewer cases.
func TestSuites(t *testing.T) {
	if raceDetector {
		t.Skip("there is no race detector for these processors; the run without -race has this test")
	}
	long(t)
	for i := range architectures {
		a := &architectures[i]
		if a.tried < triesFormulas && !*all {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			watch(t)
			args, env := []string{"test", "-timeout", "600s"}, a.env()
			if *all {
				env = append(env, "HUBLINE_LONG=1")
			}
			if a.arch == "386" {
				need386(t)
			}
			if a.emulator != "" {
				need(t, "HUBLINE_REQUIRE_ARM", a.name, a.emulator)
				args = append(args, "-exec", a.emulator)
			}
			if a.skip != "" {
				args = append(args, "-skip", a.skip)
			}
			packages := suites
			if a.tried == triesFormulas && !*all {
				t.Log("SKIPPED: all but the formulas and the wire formats; 386 has all, -all tries it here, too")
				packages = formulas
			}
			t.Log("\n" + run(t, root, env, "go", append(args, packages...)...))
			if a.tried == triesFormulas && !*all {
				return
			}
			if a.emulator != "" {
				args = append(args, "-run", emulatedModems)
			}
			t.Log("\n" + run(t, root, env, "go", append(args, modemSuite)...))
		})
	}
}

// One static binary per kind of board; without -all, one for each word size, and one of the other
// byte order.
func TestLinuxBinaryOfEveryArchitecture(t *testing.T) {
	if raceDetector {
		t.Skip("the run without -race has this test")
	}
	long(t)
	watch(t)
	for i := range architectures {
		a := &architectures[i]
		if a.tried == triesNothing && !*all {
			t.Logf("SKIPPED: %s NOT built; -all does", a.name)
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			binary := filepath.Join(t.TempDir(), "hubline-telemetry")
			run(t, root, a.env(), "go", "build", "-ldflags", "-s -w", "-o", binary, "./cross/arm/linux")
			f, err := elf.Open(binary)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Machine != a.machine {
				t.Errorf("built for %v", f.Machine)
			}
			if big := a.name == "mips"; (f.ByteOrder.String() == "BigEndian") != big {
				t.Errorf("built %v", f.ByteOrder)
			}
			for _, p := range f.Progs {
				if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
					t.Errorf("not static: it has a segment %v", p.Type)
				}
			}
			info, err := os.Stat(binary)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%.2f MB", float64(info.Size())/1e6)
			// It starts: without a connection string it reports the missing flag.
			if a.arch == "386" {
				need386(t)
			}
			if a.emulator != "" {
				if _, err := exec.LookPath(a.emulator); err != nil {
					t.Logf("SKIPPED: %s not found; start NOT verified", a.emulator)
					return
				}
			}
			args := []string{binary}
			if a.emulator != "" {
				args = append([]string{a.emulator}, args...)
			}
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env = append(os.Environ(), a.env()...)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "flag -connect") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
