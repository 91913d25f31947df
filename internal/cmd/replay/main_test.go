package main

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The changes are those of Go 1.26.
func TestTheChangesApplyToThisRuntime(t *testing.T) {
	if !strings.HasPrefix(runtime.Version(), "go1.26") {
		t.Skip("the changes are for go1.26, this is " + runtime.Version())
	}
	root, err := goRoot()
	require.NoError(t, err)
	_, err = overlay(root, t.TempDir(), 7)
	require.NoError(t, err)
}

func TestAnotherRuntimeIsRefused(t *testing.T) {
	_, err := overlay(t.TempDir(), t.TempDir(), 0)
	require.Error(t, err)
}
