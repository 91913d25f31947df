package arm

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// The Pico W's driver has 231 KB of firmware for the chip.
const picoFlash, picoRAM = 620 * kb, 24 * kb

// picoModule copies the firmware of the Pico W, which is a module of its own, because its driver is
// one: with a Go version that TinyGo accepts, and with its files changed. It downloads the driver.
func picoModule(t *testing.T, require string, change *strings.Replacer) (folder string) {
	t.Helper()
	tree := boardModule(t, nil)
	const module = "cross/arm/board/picow"
	files := strings.Fields(run(t, root, nil, "git", "ls-files", "--cached", "--others", "--exclude-standard", module))
	if len(files) == 0 {
		t.Fatal("git lists no files of " + module)
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(tree, module, path.Base(name)), []byte(change.Replace(string(text))))
	}
	folder = filepath.Join(tree, module)
	run(t, folder, nil, "go", "mod", "edit", "-go=1.23")
	download := exec.CommandContext(t.Context(), "go", "mod", "download")
	download.Dir = folder
	if out, err := download.CombinedOutput(); err != nil {
		lack(t, require, "go mod download: "+string(out), "the firmware of the Pico W")
	}
	return folder
}

// machinePackage has what the firmware uses of TinyGo's package.
const machinePackage = `package machine

type dog struct{}

type WatchdogConfig struct{ TimeoutMillis uint32 }

var Watchdog dog

func (dog) Configure(WatchdogConfig) error { return nil }
func (dog) Start() error                   { return nil }
func (dog) Update()                        {}
func GetRNG() (uint32, error)              { return 0, nil }
func ReadTemperature() int32               { return 0 }
`

// Without TinyGo, go vet checks the types of the firmware and its use of driver and stack: the
// driver's part for the chip's bus is left out, and package machine is played.
func TestThePicoWFirmwareIsVetted(t *testing.T) {
	if raceDetector {
		t.Skip("the run without -race has this test")
	}
	long(t)
	watch(t)
	const own = `"github.com/hubline-iot/hubline/cross/arm/board/picow/machine"`
	folder := picoModule(t, "HUBLINE_REQUIRE_TINYGO", strings.NewReplacer(`"machine"`, own,
		"cyw43439.NewPicoWDevice()", "new(cyw43439.Device)"))
	write(t, filepath.Join(folder, "machine", "machine.go"), []byte(machinePackage))
	run(t, folder, []string{"GOWORK=off", "GOFLAGS="}, "go", "vet", "-tags=tinygo", ".")
}

// The firmware of the Pico W is built by TinyGo.
func TestThePicoWFirmwareIsBuilt(t *testing.T) {
	tinyGo(t)
	watch(t)
	folder := picoModule(t, "HUBLINE_REQUIRE_TINYGO", strings.NewReplacer())
	out := run(t, folder, nil, "tinygo", "build", "-target", "pico-w", "-panic=trap", "-stack-size="+netStackSize,
		"-ldflags", identity+" -X main.addr=192.0.2.1:1883 -X main.ssid=name -X main.passphrase=passphrase",
		"-size", "short", "-o", filepath.Join(t.TempDir(), "firmware.elf"), ".")
	flash, ram := sizesOf(t, out)
	if flash > picoFlash || ram > picoRAM {
		t.Errorf("%d bytes of flash and %d of static RAM, want %d and %d at most", flash, ram, picoFlash, picoRAM)
	}
	t.Logf("flash %d of %d, static RAM %d of %d", flash, picoFlash, ram, picoRAM)
}
