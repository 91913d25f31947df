package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A module is checked with its tests, as the system has them.
func TestCheck(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n", "m.go": "package m\n\nimport \"os\"\n\nvar Int, Args = 1, os.Args\n",
		"m_windows.go": "package m\n\nvar Missing = missing\n",
		"m_test.go":    "package m_test\n\nimport \"example.com/m\"\n\nfunc f() { m.Int = 1 << 40 }\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	for system, want := range map[string]string{
		"linux/amd64": "[]",
		"linux/386": "[m_test.go:5:20: cannot use 1 << 40 (untyped int constant 1099511627776) as int value in " +
			"assignment (overflows)]",
		"windows/amd64": "[m_windows.go:3:15: undefined: missing]",
	} {
		faults, err := check(folder, system)
		require.NoError(t, err)
		var texts []string
		for _, fault := range faults {
			texts = append(texts, filepath.Base(fault.Error()))
		}
		require.Equal(t, want, fmt.Sprint(texts), system)
	}
	_, err := check(folder, "windows")
	require.ErrorContains(t, err, "windows/386")
}
