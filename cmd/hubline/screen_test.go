package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A line of the log takes the place of the bar, and never stands behind it.
func TestALineOfTheLogReplacesTheBar(t *testing.T) {
	var w bytes.Buffer
	s := &screen{w: &w}
	fmt.Fprintln(s, "connected")
	require.Equal(t, "connected\n", w.String(), "without a bar nothing is cleared")
	w.Reset()
	s.draw("[=]")
	fmt.Fprintln(s, "lost")
	s.draw("[==]")
	s.clear()
	s.clear()
	fmt.Fprintln(s, "2 acknowledged")
	require.Equal(t, fmt.Sprintf("\r%-78s\r%78s\rlost\n\r%-78s\r%78s\r2 acknowledged\n", "[=]", "", "[==]", ""),
		w.String())
}
