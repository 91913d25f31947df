package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnUpdateHasATableOrJSON(t *testing.T) {
	args := []string{"-devices", "300", "-scenario", "update,update-bad", "-rules", "spread,waves", "-interval", "1h"}
	out := command(t, args...)
	require.Contains(t, out, "update-bad: 300 devices, 50 MB over 1000 Mbit/s")
	require.Equal(t, 2, strings.Count(out, "waves "), out)
	var updates []update
	require.NoError(t, json.Unmarshal([]byte(command(t, append(args, "-image", "1e6", "-json", "-")...)), &updates))
	require.Len(t, updates[1].Results, 2)
	require.Equal(t, 1e6, updates[0].Rollout.Image)
	require.Equal(t, 300, updates[0].Results[0].Installed)
}

func TestAnUpdateRefusesFlagsOfOtherScenarios(t *testing.T) {
	for _, args := range [][]string{
		{"-o", "x.html"}, {"-spread", "1s"}, {"-rules", "default"}, {"-image", "0"}, {"-devices", "9000000"},
	} {
		err := run(context.Background(), append([]string{"-scenario", "update"}, args...), &bytes.Buffer{}, &bytes.Buffer{})
		require.Error(t, err, args)
		require.Equal(t, 2, status(err), args)
	}
}
