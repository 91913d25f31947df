package importguard

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every module of go.mod has its licence in the notices.
func TestEveryModuleHasItsNotice(t *testing.T) {
	requires, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	notices, err := os.ReadFile(filepath.Join(root, "THIRD_PARTY_NOTICES.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(requires)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) < 2 || !strings.HasPrefix(fields[1], "v") {
			continue
		}
		seen++
		if !strings.Contains(string(notices), "\n| "+fields[0]+" | ") {
			t.Errorf("%s is in go.mod and has no row in THIRD_PARTY_NOTICES.md", fields[0])
		}
	}
	if seen == 0 {
		t.Error("no module found in go.mod")
	}
}
