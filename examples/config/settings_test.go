package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

func TestInvalidSettingsAreNamed(t *testing.T) {
	require.NoError(t, check(usual()))
	for want, change := range map[string]func(s *settings){
		"field interval: give seconds from 0.01":           func(s *settings) { s.Interval = 0 },
		"field level: give debug":                          func(s *settings) { s.Level = "loud" },
		"field retry.name: give one of exponential, fixed": func(s *settings) { s.Retry.Name = "hope" },
		"field retry.min: give seconds":                    func(s *settings) { s.Retry.Min = -1 },
		"field retry.max: give seconds":                    func(s *settings) { s.Retry.Max = 1e9 },
		"field retry: invalid: retry policy: Exponential":  func(s *settings) { s.Retry.Min, s.Retry.Max = 5, 1 },
	} {
		s := usual()
		change(&s)
		require.ErrorContains(t, check(s), want)
	}
	for name := range policies {
		s := usual()
		s.Retry.Name = name
		require.NoError(t, check(s), name)
	}
}

// A file that a person has edited wrongly is an error at the start, not a device without settings.
func TestADamagedFileIsAnError(t *testing.T) {
	creds, err := device.ParseConnectionString("HostName=h;DeviceId=d;SharedAccessKey=c2VjcmV0LWtleS1vZi10aGUtdGVzdHM=")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "config.json")
	for text, want := range map[string]string{
		"{":               "config.json has no settings; remove it",
		`{"interval":-1}`: "config.json: field interval",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := start(creds, mqtt.New(nil), path)
		require.ErrorContains(t, err, want)
	}
}
