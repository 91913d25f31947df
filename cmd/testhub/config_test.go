package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// printed returns the flags in force for a command line.
func printed(t *testing.T, args ...string) string {
	var stdout, stderr bytes.Buffer
	require.Zero(t, run(t.Context(), append(args, "-print-config"), &stdout, &stderr), stderr.String())
	return stdout.String()
}

// The command line goes before the file, for repeatable flags as a whole. The output of
// -print-config is a file with the same effect.
func TestFlagsOfAFile(t *testing.T) {
	file := write(t, "hub.json", `{"host": "hub.example.test", "keep": 5, "seed": 18446744073709551615, "json": true,
		"device": ["a", "b"], "name": "10.0.0.1", "enroll": ["s-1", "s-2"], "mqtt": "127.0.0.1:0", "scope": "0ne1"}`)
	var got map[string]any
	text := printed(t, "-config", file, "-keep", "7", "-device", "c", "-json=false", "-https", "off")
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	require.NoError(t, d.Decode(&got))
	for name, want := range map[string]any{
		"host": "hub.example.test", "keep": json.Number("7"), "seed": json.Number("18446744073709551615"), "json": false,
		"device": []any{"c"}, "name": []any{"10.0.0.1"}, "enroll": []any{"s-1", "s-2"}, "mqtt": "127.0.0.1:0",
		"amqp": "127.0.0.1:5671", "https": "off", "scope": "0ne1", "dps-mqtt": "127.0.0.2:8883", "ca": "testhub-ca.pem",
	} {
		require.Equal(t, want, got[name], name)
	}
	for _, name := range append(notInFile, "state", "workload") {
		require.NotContains(t, got, name)
	}
	require.Equal(t, text, printed(t, "-config", write(t, "again.json", text)))
}

// A token that was given, or made because the address is not on loopback, is not printed.
func TestPrintedFlagsHaveNoSecrets(t *testing.T) {
	const token = "0123456789abcdef"
	require.NotContains(t, printed(t, "-control-token", token), token)
	require.NotContains(t, printed(t, "-control", "0.0.0.0:0"), "token")
}

func TestAStartWithAFile(t *testing.T) {
	p := start(t, "-config", write(t, "hub.json", `{"device": ["a", "b"], "keep": 3}`))
	require.Len(t, p.ready.Devices, 2)
}

// Shells of Windows begin a file with a byte order mark.
func TestFilesWithAByteOrderMark(t *testing.T) {
	p := start(t, "-config", write(t, "hub.json", "\uFEFF"+`{"keep": 3}`),
		"-devices", write(t, "devices.json", "\uFEFF"+`{"devices": [{"id": "a"}, {"id": "b"}]}`))
	require.Len(t, p.ready.Devices, 2)
}

func TestErrorsInAFileOfFlags(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		want    []string
	}{
		"no JSON":              {`keep: 5`, []string{"no object of JSON", `{"keep": 1000}`}},
		"no object":            {`[]`, []string{"no object"}},
		"twice":                {`{"keep":1,"keep":2}`, []string{"keep", "more than once"}},
		"unknown":              {`{"kep": 5}`, []string{"kep is no flag", "the nearest is keep"}},
		"with a dash":          {`{"-devices": "x"}`, []string{"-devices is no flag", "the nearest is devices"}},
		"the file itself":      {`{"config": "x"}`, []string{"config is no flag that a file can have"}},
		"a value":              {`{"keep": "many"}`, []string{"keep", `"many"`, "-h"}},
		"a value of a flag":    {`{"x509": ["dev-1"]}`, []string{"x509", "id=thumbprint"}},
		"a list":               {`{"host": ["a"]}`, []string{"host", "not repeatable"}},
		"an object":            {`{"host": {}}`, []string{"host", "text nor a number"}},
		"an object in a list":  {`{"device": ["a", null]}`, []string{"device", "[1]", "text"}},
		"a check of all flags": {`{"mqtt": "8883"}`, []string{"flag -mqtt", "host:port"}},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, 2, run(t.Context(), []string{"-config", write(t, "hub.json", c.content)}, &stdout, &stderr))
			for _, want := range c.want {
				require.Contains(t, stderr.String(), want)
			}
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
		})
	}
	var stderr bytes.Buffer
	require.Equal(t, 2, run(t.Context(), []string{"-config", "/nowhere.json"}, &stderr, &stderr))
	require.Contains(t, stderr.String(), "flag -config: open /nowhere.json")
}

// Each flag that may be given several times says so, because a list in a file needs it.
func TestRepeatableFlags(t *testing.T) {
	var all []string
	f := flag.NewFlagSet("", flag.ContinueOnError)
	s := &settings{}
	s.dps.flags(f)
	s.edge.flags(f)
	s.certs.flags(f)
	f.VisitAll(func(fl *flag.Flag) {
		if repeatable(fl) {
			all = append(all, fl.Name)
		}
	})
	require.Equal(t, []string{"enroll", "group", "link", "module", "name", "route", "tpm"}, all)
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"keep": 5, "device": ["a"], "json": true}`))
	f.Add([]byte(`{"kep": []}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		var stdout, stderr bytes.Buffer
		file := write(t, "f.json", string(content))
		switch status := run(t.Context(), []string{"-config", file, "-print-config"}, &stdout, &stderr); status {
		case 0:
			require.True(t, json.Valid(stdout.Bytes()), stdout.String())
		case 2:
			require.Contains(t, stderr.String(), "flag")
		default:
			require.FailNow(t, "a check of a file failed otherwise", "%d: %s", status, stderr.String())
		}
	})
}
