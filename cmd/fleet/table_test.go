package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
)

// A fault that outlasts the simulated time is no scenario without a reference.
func TestAFaultThatDoesNotEndPrintsNever(t *testing.T) {
	r := &fleet.Result{
		Duration: 10 * time.Minute, Recovery: 20 * time.Minute, Back50: fleet.Never, Back99: fleet.Never,
		Back100: fleet.Never,
	}
	require.Equal(t, "never", back(r, r.Back50))
	require.Equal(t, "-", after(r, "0"))
	r.Recovery = fleet.Never
	require.Equal(t, "-", back(r, r.Back50))
}
