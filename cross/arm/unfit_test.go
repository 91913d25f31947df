package arm

import (
	"os/exec"
	"strings"
	"testing"
)

// A chip that cannot carry the firmware ends the build with a sentence that says why.
func TestUnfitChips(t *testing.T) {
	long(t)
	watch(t)
	for tag, want := range map[string]string{
		"avr": "AVR chips have no goroutines", "stm32f103": "20 KB of RAM at most", "nrf51": "20 KB of RAM at most",
		"stm32l0": "20 KB of RAM at most", "stm32": "", "nrf52840": "",
	} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "tinygo,"+tag, "./cross/arm/board")
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if (err != nil) != (want != "") || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %q in\n%s", tag, err, want, out)
		}
	}
}
