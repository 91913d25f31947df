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
const picoFlash, picoRAM = 560 * kb, 24 * kb

// The firmware of the Pico W is a module of its own, because its driver is one. It is built in a
// copy with a Go version that TinyGo accepts.
func TestThePicoWFirmwareIsBuilt(t *testing.T) {
	tinyGo(t)
	watch(t)
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
		write(t, filepath.Join(tree, module, path.Base(name)), text)
	}
	folder := filepath.Join(tree, module)
	run(t, folder, nil, "go", "mod", "edit", "-go=1.23")
	download := exec.CommandContext(t.Context(), "go", "mod", "download")
	download.Dir = folder
	if out, err := download.CombinedOutput(); err != nil {
		lack(t, "HUBLINE_REQUIRE_TINYGO", "go mod download: "+string(out), "the firmware of the Pico W")
	}
	out := run(t, folder, nil, "tinygo", "build", "-target", "pico-w", "-panic=trap", "-stack-size="+netStackSize,
		"-ldflags", identity+" -X main.addr=192.0.2.1:1883 -X main.ssid=name -X main.passphrase=passphrase",
		"-size", "short", "-o", filepath.Join(t.TempDir(), "firmware.elf"), ".")
	flash, ram := sizesOf(t, out)
	if flash > picoFlash || ram > picoRAM {
		t.Errorf("%d bytes of flash and %d of static RAM, want %d and %d at most", flash, ram, picoFlash, picoRAM)
	}
	t.Logf("flash %d of %d, static RAM %d of %d", flash, picoFlash, ram, picoRAM)
}
