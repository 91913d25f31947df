package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page says the same about the exit statuses as the help does.
func TestThePageHasTheExitStatuses(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, s := range statuses {
		require.Contains(t, strings.ReplaceAll(string(text), "`", ""), fmt.Sprintf("| %d | %s |\n", s.status, s.means))
	}
}
