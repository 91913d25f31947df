package arm

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// program is a program built for boards, and its budget. The heap is checked where the firmware
// runs, in uart_test.go.
type program struct {
	name   string
	folder string
	flags  []string
	boards []boardBudget
}

// boardBudget is the upper limit of flash and static RAM (data, zeroed data and the first stack),
// in bytes, as tinygo build -size short counts them. Raise a number only in the change that
// explains why. Zero: only the build is checked.
type boardBudget struct {
	target     string
	flash, ram int
}

const kb = 1 << 10

// identity holds the linker's settings of a firmware.
const identity = "-X main.host=hub.example.test -X main.deviceID=board-1 -X " +
	"main.key=MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

// stackSize is the stack of each goroutine of a firmware that reaches its network over a serial
// line: board.StackSize. netStackSize is that of a firmware whose drivers run on the same stacks.
const stackSize, netStackSize = "4kb", "8kb"

var (
	firmware     = []string{"-panic=trap", "-stack-size=" + stackSize, "-ldflags", identity}
	netFirmware  = []string{"-panic=trap", "-stack-size=" + netStackSize, "-ldflags", identity}
	wasiFirmware = []string{"-panic=trap", "-ldflags", identity} // its default is 64 KB
	client       = []string{"-panic=trap", "-stack-size=" + stackSize}
)

// flashBudget is the upper limit of a whole firmware on a Cortex-M3. ramBudget is that of all its
// RAM at the peak: static, and the heap with its stacks, which the emulated chips measure.
// staticLimit is the static part.
const flashBudget, ramBudget, staticLimit = 144 * kb, 40 * kb, 8 * kb

// provisioned builds a firmware that asks the provisioning service for its hub.
var provisioned = []string{"-panic=trap", "-stack-size=" + stackSize, "-tags", "provisioning", "-ldflags",
	provisioningScope + identity}

const provisioningScope = "-X main.scope=0ne00ABCDEF "

var programs = []program{
	{"policy and filter alone", "probe/policy", []string{"-panic=trap"}, []boardBudget{
		{"cortex-m-qemu", 16 * kb, 4*kb + 512}, {"microbit", 16 * kb, 4*kb + 512}, {"arduino-nano33", 0, 0},
		{"hifive1b", 0, 0}, {"riscv-qemu", 0, 0}, {"qtpy-esp32c3", 0, 0},
	}},
	{"MQTT codec alone", "probe/codec", []string{"-panic=trap"}, []boardBudget{{"cortex-m-qemu", 6 * kb, 4*kb + 512},
		{"microbit", 6 * kb, 4*kb + 512}, {"riscv-qemu", 0, 0}, {"qtpy-esp32c3", 0, 0}}},
	{"readings in flash alone", "probe/flash", []string{"-panic=trap"}, []boardBudget{{"microbit", 10 * kb, 4 * kb}}},
	{"whole client, serial modem", "cross/arm/board/serial", firmware, []boardBudget{
		{"cortex-m-qemu", flashBudget, staticLimit}, {"riscv-qemu", 160 * kb, staticLimit}}},
	{"the same, provisioned", "cross/arm/board/serial", provisioned,
		[]boardBudget{{"cortex-m-qemu", flashBudget, staticLimit}}},
	{"client without twin", "probe/telemetry", client, []boardBudget{{"cortex-m-qemu", 104 * kb, staticLimit}}},
	{"the same, twin and methods", "probe/twin", client, []boardBudget{{"cortex-m-qemu", 128 * kb, staticLimit}}},
	{"a client over MQTT 5", "probe/mqtt5", client, []boardBudget{{"cortex-m-qemu", 136 * kb, staticLimit}}},
	{"a client of the MQTT v5 profile", "probe/next", client, []boardBudget{{"cortex-m-qemu", 176 * kb, staticLimit}}},
	{"whole client, TinyGo's net", "cross/arm/board/tinynet", netFirmware, []boardBudget{
		{"pico", 200 * kb, 16 * kb}, {"pico-w", 200 * kb, 16 * kb}, {"nano-rp2040", 200 * kb, 16 * kb},
		{"wioterminal", 200 * kb, 16 * kb}, {"metro-m4-airlift", 200 * kb, 16 * kb},
		{"feather-nrf52840", 200 * kb, 16 * kb}, {"stm32f4disco", 200 * kb, 16 * kb}, {"pico2", 200 * kb, 16 * kb},
		{"arduino-nano33", 200 * kb, 16 * kb}, {"arduino-mkrwifi1010", 200 * kb, 16 * kb},
		// of whose RAM 47 KB are placeholders for addresses in flash
		{"xiao-esp32c3", 220 * kb, 64 * kb},
	}},
	{"whole client, WASI", "cross/arm/board/wasi", wasiFirmware, []boardBudget{{"wasip1", 0, 0}}},
}

// probes are programs for the tests only. Their output does not depend on the processor, which
// TestProbesOnACortexM3 checks.
var probes = map[string]string{
	"probe/policy": `package main

import (
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

var policies = [...]retrypolicy.Policy{
	retrypolicy.ExponentialBackoffWithJitter{},
	retrypolicy.ExponentialBackoffWithJitter{C: 5e9, Cmin: 10e9, Cmax: 60e9, Jd: 0.3, Ju: 0.1},
	retrypolicy.NoRetry{},
}

func main() {
	random := uint64(1)
	for i, p := range policies {
		for retry := 1; retry <= 80; retry++ {
			random = random*6364136223846793005 + 1442695040888963407
			d := p.Decide(retrypolicy.Attempt{Retry: retry, Kind: transport.Network, Rand: random})
			println("policy", i, retry, d.Retry, int64(d.Delay))
		}
	}
	for k := transport.Kind(0); k < 40; k++ {
		rule := errfilter.Of(k)
		println("filter", int(k), errfilter.Retryable(k), rule.Hint())
	}
	println("PASS")
}
`,
	"probe/policies": `package main

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/transport"
)

const base, most = 50 * time.Millisecond, 20 * time.Second

func policies() []retrypolicy.Policy {
	all := []retrypolicy.Policy{
		retrypolicy.Fixed{Delay: base, Jitter: 0.3}, retrypolicy.Incremental{Step: 7 * base, Max: most, Jitter: 0.1},
		compat.TruncatedExponential{}, compat.Azcore{MaxRetries: 30},
		compat.AzureC{}, compat.AzureJava{Count: 30, Min: base, Max: most, Delta: 3 * base, Apart: time.Second},
		compat.AzureCSharp{MaxRetries: 35, Max: most},
		compat.AzureCSharp{Curve: compat.AzureCSharpFixed, MaxRetries: 9, Delay: base},
		compat.AzureCSharp{Curve: compat.AzureCSharpIncremental, MaxRetries: 30, Delay: base, Max: most},
		compat.AzureJava{}, compat.AzureNode(), compat.AWSGoBackoff{Max: most}, compat.Cenkalti(),
		compat.Failsafe{Retries: -1, Delay: base, Max: most, Factor: 1.7, JitterFactor: 0.25},
		compat.FetchRetry{Retries: 20, Delay: base}, compat.Polly{Retries: 30, Delay: base},
		compat.RetryableHTTP{Retries: 30, Min: base, Max: most}, compat.AzureIoTOperations(),
		compat.AzureNodeDocumented(), compat.CenkaltiV4(),
		retrypolicy.MaxAttempts{Total: 7, Policy: retrypolicy.RetryAfter{Policy: retrypolicy.NoRetry{}}},
	}
	for j := retrypolicy.JitterNone; j <= retrypolicy.JitterProportional; j++ {
		all = append(all, retrypolicy.Backoff{Base: base, Factor: 1.618, Max: most, Jitter: j, Low: 0.8, High: 1.2})
	}
	return all
}

func main() {
	random := uint64(1)
	for i, p := range policies() {
		a := retrypolicy.Attempt{Kind: transport.Throttled}
		s := retrypolicy.Inner(p, retrypolicy.Start{})
		for a.Retry = 1; a.Retry <= 40; a.Retry++ {
			random = random*6364136223846793005 + 1442695040888963407
			a.Rand = random
			d := s.Decide(a)
			println("policy", i, a.Retry, d.Retry, int64(d.Delay))
		}
		s.End()
	}
	println("PASS")
}
`,
	"probe/codec": `package main

import "github.com/hubline-iot/hubline/internal/mqttwire"

// sum is FNV-1a.
func sum(b []byte) uint32 {
	h := uint32(2166136261)
	for _, c := range b {
		h = (h ^ uint32(c)) * 16777619
	}
	return h
}

func main() {
	out := make([]byte, 0, 512)
	out, err := mqttwire.AppendConnect(out, &mqttwire.Greeting{
		ClientID: "id", UserName: "user", Password: "password", KeepAlive: 60})
	println("connect", len(out), sum(out), err == nil)
	read(out)
	// What nobody should send: each byte of a PUBLISH changed in turn, and every length cut short.
	publish := []byte("\x32\x0d\x00\x05topic\x00\x07body")
	read(publish)
	for i := range publish {
		read(publish[:i])
		for _, mask := range [...]byte{0x01, 0x80, 0xff} {
			publish[i] ^= mask
			read(publish)
			publish[i] ^= mask
		}
	}
	random := uint32(1)
	for range 300 {
		out = out[:0]
		for range 24 {
			random = random*1664525 + 1013904223
			out = append(out, byte(random>>24))
		}
		read(out)
	}
	println("PASS")
}

func read(in []byte) {
	h, ok, err := mqttwire.Next(in)
	if !ok || err != nil || len(in) < h.Size+h.Body {
		println("next", ok, err == nil, h.Size, h.Body)
		return
	}
	body := in[h.Size : h.Size+h.Body]
	p, err := mqttwire.ReadPublish(h.Flags, body)
	println("publish", int(h.Type), len(p.Topic), sum(p.Topic), sum(p.Body), p.ID, err == nil)
	id, err := mqttwire.ReadID(body)
	println("id", id, err == nil)
	id, codes, err := mqttwire.ReadSuback(body)
	println("suback", id, sum(codes), err == nil)
	_, code, err := mqttwire.ReadConnack(body)
	println("connack", code, err == nil)
}
`,
}

// built are programs that are built for their sizes: clients that connect to nothing, and a store
// that flash_test.go runs.
var built = map[string]string{
	"probe/flash": flashMain,
	"probe/telemetry": clientProbe("",
		"&engine.Options{ReadBuffer: 512, WriteBuffer: 1024, Dialect: dialect.HubMessages}"),
	"probe/mqtt5": clientProbe("", "&engine.Options{ReadBuffer: 512, WriteBuffer: 1024, Protocol: engine.MQTT5(nil), "+
		"Dialect: &dialect.Topics{Telemetry: \"site/{device}/up\"}}"),
	"probe/next": nextProbe(handlers),
	"probe/twin": clientProbe(handlers,
		"&engine.Options{ReadBuffer: 4096, WriteBuffer: 1024, Dialect: dialect.HubTwinAndMethods}"),
}

// handlers set up the twin and a method of a client.
const handlers = `
	client.HandleDesired(func(ctx context.Context, d device.Desired) {
		_, err := client.PatchReported(ctx, d.JSON)
		println(err == nil)
	})
	_ = client.HandleMethod("reboot", func(context.Context, *device.MethodCall) (int, []byte) { return 200, nil })`

func clientProbe(setUp, options string) string {
	return `package main

import (
	"context"
	"errors"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

func dial(context.Context, *transport.Credentials) (engine.Conn, error) { return nil, errors.New("no network") }

func main() {
	creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "board-1",
		Token: func(context.Context) (transport.Token, error) {
			return transport.Token{Text: transport.Hide("x")}, nil
		}}
	client, err := device.New(creds, engine.New(dial, ` + options + `), &device.Options{MaxMessages: 16, Window: 8})
	if err != nil {
		println(err.Error())
		return
	}` + setUp + `
	println(client.Start() == nil, client.Send(context.Background(), &transport.Message{Body: []byte("x")}) == nil)
}
`
}

func TestBoardBudgets(t *testing.T) {
	tinyGo(t)
	watch(t)
	folder := probeModule(t)
	for _, p := range programs {
		for _, b := range p.boards {
			t.Run(p.name+"/"+b.target, func(t *testing.T) {
				args := append([]string{"build", "-target", b.target, "-size", "short", "-o", filepath.Join(t.TempDir(),
					"firmware"+extension(b.target))}, p.flags...)
				cmd := exec.CommandContext(t.Context(), "tinygo", append(args, "./"+p.folder)...)
				cmd.Dir = folder
				out, err := cmd.CombinedOutput()
				if err != nil && lacksChip.Match(out) {
					t.Skipf("SKIPPED: this TinyGo was built without the registers of the chip; %v NOT verified", cmd)
				} else if err != nil {
					t.Fatalf("%v: %v\n%s", cmd, err, out)
				}
				flash, ram := sizesOf(t, string(out))
				if b.flash != 0 && flash > b.flash {
					t.Errorf("%d bytes of flash, want %d at most", flash, b.flash)
				}
				if b.ram != 0 && ram > b.ram {
					t.Errorf("%d bytes of static RAM, want %d at most", ram, b.ram)
				}
				t.Logf("%-26s %-16s flash %6d of %6d, static RAM %5d of %5d", p.name, b.target, flash, b.flash, ram, b.ram)
			})
		}
	}
}

// lacksChip matches what TinyGo says of a target whose registers it lacks. They are generated from
// the manufacturers' files when TinyGo is built.
var lacksChip = regexp.MustCompile(`device/\w+(: build constraints exclude| is not in std)`)

// Linkers omit unused parts, also without TinyGo: standard Go's omits twin and methods, and the
// codec of MQTT 5, if a program does not use them, because nothing reaches them. So it does with
// the series of retry policies, unless a type of the program has Begin.
func TestTelemetryAloneHasNoTwinAndNoMQTT5(t *testing.T) {
	long(t)
	watch(t)
	folder := probeModule(t)
	const twin, methods, mqtt5 = "/device.(*twin).", "/device.(*methods).", "/internal/mqttwire.rules"
	const series = "/retrypolicy.Free."
	for probe, parts := range map[string]map[string]bool{
		"probe/telemetry": {twin: false, methods: false, mqtt5: false, series: false},
		"probe/twin":      {twin: true, methods: true, mqtt5: false},
		"probe/mqtt5":     {mqtt5: true},
	} {
		t.Run(probe, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "probe")
			run(t, folder, nil, "go", "build", "-o", file, "./"+probe)
			symbols := run(t, folder, nil, "go", "tool", "nm", file)
			if !strings.Contains(symbols, "/device.(*queue).") {
				t.Fatal("there are no names of package device in the program")
			}
			for part, want := range parts {
				if got := strings.Contains(symbols, part); got != want {
					t.Errorf("the program has %s: %v, want %v", part, got, want)
				}
			}
		})
	}
}

// extension returns the file extension by which tinygo selects the output format.
func extension(target string) string {
	if target == "wasip1" {
		return ".wasm"
	}
	return ".elf"
}

// sizesOf parses the table of -size short: code, data, bss, flash, ram.
func sizesOf(t *testing.T, out string) (flash, ram int) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	fields := strings.Fields(strings.ReplaceAll(lines[len(lines)-1], "|", " "))
	if len(fields) != 5 {
		t.Fatalf("tinygo printed %q", out)
	}
	flash, err := strconv.Atoi(fields[3])
	if err != nil {
		t.Fatal(err)
	}
	if ram, err = strconv.Atoi(fields[4]); err != nil {
		t.Fatal(err)
	}
	return flash, ram
}

// probeModule is boardModule with the probes.
func probeModule(t *testing.T) string {
	t.Helper()
	folder := boardModule(t, nil)
	for _, all := range []map[string]string{probes, built} {
		for name, text := range all {
			write(t, filepath.Join(folder, name, "main.go"), []byte(text))
		}
	}
	return folder
}

// A probe prints the same on this machine with standard Go and on the emulated Cortex-M3 with
// TinyGo: policies (all but the documented one in soft float), filter, codec.
func TestProbesOnACortexM3(t *testing.T) {
	tinyGo(t, "qemu-system-arm")
	watch(t)
	folder := probeModule(t)
	for name := range probes {
		t.Run(name, func(t *testing.T) {
			want := run(t, folder, nil, "go", "run", "./"+name)
			elf := filepath.Join(t.TempDir(), "probe.elf")
			// stack size as in the firmware: a policy inside a ByKind needs nearly 2 KB, the default
			run(t, folder, nil, "tinygo", "build", "-target", "cortex-m-qemu", "-stack-size="+stackSize, "-o", elf, "./"+name)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, "qemu-system-arm", "-machine", "lm3s6965evb", "-semihosting", "-display",
				"none",
				"-monitor", "none", "-serial", "stdio", "-kernel", elf).Output()
			got := strings.ReplaceAll(string(out), "\r", "")
			wantLines, gotLines := strings.Split(want, "\n"), strings.Split(got, "\n")
			for i := range wantLines {
				if i >= len(gotLines) || gotLines[i] != wantLines[i] {
					t.Fatalf("%v, line %d is\n%s\nwant\n%s", err, i+1, gotLines[min(i, len(gotLines)-1)], wantLines[i])
				}
			}
			if len(wantLines) < 250 || wantLines[len(wantLines)-2] != "PASS" {
				t.Errorf("the probe printed %d lines, the last %q", len(wantLines), wantLines[max(0, len(wantLines)-2)])
			}
			t.Logf("%d lines are the same", len(wantLines)-1)
		})
	}
}

// tested are the tests that run on the emulated Cortex-M3, in 64 KB of RAM, by package: the files
// that need no more RAM and only the available libraries.
var tested = map[string][]string{
	"errfilter":         {"errfilter_test.go"},
	"internal/texts":    {"ascii_test.go", "percent_test.go"},
	"internal/times":    {"fraction_test.go"},
	"retrypolicy":       {"exponential_test.go", "policy_test.go"},
	"internal/mqttwire": {"golden_test.go"},
}

func TestTablesOnACortexM3(t *testing.T) {
	tinyGo(t, "qemu-system-arm")
	watch(t)
	folder := boardModule(t, tested)
	for path := range tested {
		t.Run(path, func(t *testing.T) {
			out := run(t, folder, nil, "tinygo", "test", "-target", "cortex-m-qemu", "-v", "./"+path)
			passed := strings.Count(out, "--- PASS")
			if passed == 0 || strings.Contains(out, "panic") || strings.Contains(out, "FAIL") {
				t.Errorf("%d tests passed\n%s", passed, out)
			}
			t.Logf("%d tests passed", passed)
		})
	}
}
