package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const toaster = `{"provider":"Contoso","name":"Toaster","version":"1.1"}`

// update deploys the update of testdata to an enrolled device, which reports a success.
func (p *program) update(id string) {
	p.t.Helper()
	p.good("POST", "/updates/deployments", `{"workflow":"first","update":`+toaster+`}`)
	i := slices.IndexFunc(p.ready.DPS.Enrolled, func(e readyEnrollment) bool { return e.ID == id })
	c := p.registrar(p.ready.DPS.Enrolled[i], "https", nil)
	a, err := c.Call(soon(p.t), "requestSoftwareUpdates", []byte(`{"agentInfo":{"agentSdkVersion":"1.0","agentProfile":1,`+
		`"compatibilityProperties":{"manufacturer":"Contoso","model":"Toaster"}}}`))
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusOK, a.Status)
	require.Contains(p.t, string(a.Body), `"workflowId":"first"`)
	const result = `"outcome":"SUCCEEDED","failureOrigin":"NOT_APPLICABLE","resultCode":700,"extendedResultCodes":"0"`
	a, err = c.Call(soon(p.t), "reportUpdateStatus", fmt.Appendf(nil, `{"workflowId":"first","installedUpdateId":%s,`+
		`"installResult":{%s,"stepResults":{"step_0":{%s}}}}`, toaster, result, result))
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusOK, a.Status)
	c.CloseIdle()
}

func TestUpdatesOfADirectory(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/updates")))
	p := start(t, "-enroll", "sensor-1", "-updates", dir, "-mqtt", "off", "-amqp", "off", "-https", "off")
	p.update("sensor-1")
	p.printed(func(l line) bool {
		return l.Event == "update" && l.Detail == "update report" && l.Update == "SUCCEEDED" && l.Device == "sensor-1"
	})
	ids := func(name string) []any { return p.good("POST", "/updates/reload", "")[name].([]any) }
	require.Empty(t, ids("published"))

	manifest := filepath.Join(dir, "Contoso.Toaster.1.1.importmanifest.json")
	text, err := os.ReadFile(manifest)
	require.NoError(t, err)
	firmware := filepath.Join(dir, "firmware.swu")
	require.NoError(t, os.WriteFile(firmware, []byte("x"), 0o600))
	require.Contains(t, p.refused(400, "POST", "/updates/reload", "").Problem, "make the manifest anew")
	require.Len(t, p.good("GET", "/updates", "")["updates"], 1, "it stays as it was")

	below := filepath.Join(dir, "below")
	require.NoError(t, os.CopyFS(below, os.DirFS("testdata/updates")))
	require.NoError(t, os.Remove(manifest))
	require.NoError(t, os.WriteFile(filepath.Join(below, filepath.Base(manifest)),
		bytes.Replace(text, []byte(`"1.1"`), []byte(`"1.2"`), 1), 0o600))
	require.Equal(t, []any{"Contoso/Toaster/1.2"}, ids("published"))
	require.Empty(t, p.good("GET", "/updates/deployments", "")["deployments"], "the update is gone")
	require.NoError(t, os.RemoveAll(below))
	require.Equal(t, []any{"Contoso/Toaster/1.2"}, ids("removed"))
}

func TestReloadKeepsReferencesWhole(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	manifest := func(name, step, files string) string {
		return fmt.Sprintf(`{"updateId":{"provider":"Contoso","name":%q,"version":"1.0"},"compatibility":[{"model":%[1]q}],`+
			`"instructions":{"steps":[%s]},"files":[%s],"createdDateTime":"2026-11-28T12:00:00Z","manifestVersion":"5.0"}`,
			name, step, files)
	}
	lever := func(content string) {
		sum := sha256.Sum256([]byte(content))
		write("a.sh", content)
		write("lever.importmanifest.json", manifest("Lever", `{"handler":"microsoft/script:1","files":["a.sh"]}`, fmt.Sprintf(
			`{"filename":"a.sh","sizeInBytes":%d,"hashes":{"sha256":%q}}`, len(content),
			base64.StdEncoding.EncodeToString(sum[:]))))
	}
	const reference = `{"type":"reference","updateId":{"provider":"Contoso","name":"Lever","version":"1.0"}}`
	lever("one")
	write("alpha.importmanifest.json", manifest("Alpha", reference, ""))
	p := start(t, "-dps", "-updates", dir, "-mqtt", "off", "-amqp", "off", "-https", "off")
	p.good("POST", "/updates", `{"importManifest":`+manifest("Oven", reference, "")+`}`)

	lever("two")
	require.Equal(t, []any{"Contoso/Lever/1.0", "Contoso/Alpha/1.0", "Contoso/Oven/1.0"},
		p.good("POST", "/updates/reload", "")["published"], "those that refer to it have its hashes")
	require.Contains(t, p.refused(409, "DELETE", "/updates/Contoso/Lever/1.0", "").Fix, "refer")

	good, err := os.ReadFile(filepath.Join(dir, "lever.importmanifest.json"))
	require.NoError(t, err)
	write("base.importmanifest.json", manifest("Base", `{"handler":"microsoft/script:1"}`, ""))
	write("lever.importmanifest.json", manifest("Lever", strings.Replace(reference, "Lever", "Base", 1), ""))
	require.Contains(t, p.refused(400, "POST", "/updates/reload", "").Problem, "Lever/1.0, which has references itself")
	require.NoError(t, os.Remove(filepath.Join(dir, "base.importmanifest.json")))
	write("lever.importmanifest.json", string(good))

	require.NoError(t, os.Remove(filepath.Join(dir, "lever.importmanifest.json")))
	require.Contains(t, p.refused(400, "POST", "/updates/reload", "").Problem, "Alpha/1.0 refers to Contoso/Lever/1.0")
	require.NoError(t, os.Remove(filepath.Join(dir, "alpha.importmanifest.json")))
	require.Contains(t, p.refused(400, "POST", "/updates/reload", "").Problem, "Oven/1.0 refers to Contoso/Lever/1.0")
	require.Len(t, p.good("GET", "/updates", "")["updates"], 3, "all stay as they were")
	p.good("DELETE", "/updates/Contoso/Oven/1.0", "")
	require.Equal(t, []any{"Contoso/Alpha/1.0", "Contoso/Lever/1.0"}, p.good("POST", "/updates/reload", "")["removed"])
}

// The URLs of files are of a port that is open, with a certificate that devices trust.
func TestFilesOfUpdatesAreServed(t *testing.T) {
	p := start(t, "-enroll", "sensor-1", "-updates", "testdata/updates", "-mqtt", "off", "-amqp", "off", "-https", "off")
	p.update("sensor-1")
	p.good("POST", "/updates/deployments", `{"workflow":"again","update":`+toaster+`}`)
	i := slices.IndexFunc(p.ready.DPS.Enrolled, func(e readyEnrollment) bool { return e.ID == "sensor-1" })
	c := p.registrar(p.ready.DPS.Enrolled[i], "mqtt", nil)
	defer c.CloseIdle()
	answer, err := c.Call(soon(t), "requestSoftwareUpdates", []byte(`{"agentInfo":{"agentSdkVersion":"1.0",`+
		`"agentProfile":1,"compatibilityProperties":{"manufacturer":"Contoso","model":"Toaster"}}}`))
	require.NoError(t, err)
	var offer struct {
		UpdateMetadata struct{ FileURLs map[string]string }
	}
	require.NoError(t, json.Unmarshal(answer.Body, &offer))
	require.Len(t, offer.UpdateMetadata.FileURLs, 1)
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: p.tls()}}
	defer web.CloseIdleConnections()
	for _, url := range offer.UpdateMetadata.FileURLs {
		r, err := web.Get(url)
		require.NoError(t, err)
		body, err := io.ReadAll(r.Body)
		require.NoError(t, errors.Join(err, r.Body.Close()))
		want, err := os.ReadFile("testdata/updates/firmware.swu")
		require.NoError(t, err)
		require.Equal(t, string(want), string(body))
	}
}

func TestWrongRequestsAboutUpdates(t *testing.T) {
	bare := start(t, "-dps", "-mqtt", "off", "-amqp", "off", "-https", "off")
	require.Contains(t, bare.refused(404, "GET", "/updates", "").Fix, "-updates")
	p := start(t, "-updates", "testdata/updates", "-mqtt", "off", "-amqp", "off", "-https", "off")
	for _, row := range []struct{ method, path, body, field string }{
		{"POST", "/updates", `{}`, "importManifest"},
		{"POST", "/updates", `{"importManifest":{}}`, "importManifest"},
		{"POST", "/updates", `{"importManifest":{},"files":{"a":"%"}}`, "files"},
		{"POST", "/updates/deployments", `{"update":{"provider":1}}`, "update.provider"},
		{"POST", "/updates/deployments", `{"update":` + toaster + `,"percent":0}`, "percent"},
		{"POST", "/updates/deployments", `{"update":` + toaster + `,"devices":[1]}`, "devices[0]"},
		{"POST", "/updates/deployments", `{"update":` + toaster + `,"properties":1}`, "properties"},
		{"POST", "/updates/keys/rotate", `{"root":1}`, "root"},
		{"GET", "/updates/devices/x/wait?outcome=DONE", "", "outcome"},
	} {
		require.Equal(t, row.field, p.refused(400, row.method, row.path, row.body).Field, row.body)
	}
	for _, row := range []struct{ method, path, body string }{
		{"POST", "/updates/deployments", `{"update":{"provider":"a","name":"b","version":"1.0"}}`},
		{"DELETE", "/updates/deployments/none", ""}, {"DELETE", "/updates/a/b/1.0", ""},
		{"POST", "/updates/keys/none/disable", ""}, {"POST", "/updates/deployments/none/retry", ""},
	} {
		p.refused(404, row.method, row.path, row.body)
	}
	require.Contains(t, p.refused(504, "GET", "/updates/devices/x/wait?within=1ms", "").Problem, `"device":"x"`)
}

// Keys, deployments and reports survive a restart.
func TestUpdatesSurviveARestart(t *testing.T) {
	args := []string{"-enroll", "sensor-1", "-updates", "testdata/updates", "-state", t.TempDir(), "-mqtt", "off",
		"-amqp", "off", "-https", "off"}
	p := start(t, args...)
	p.update("sensor-1")
	p.good("POST", "/updates/keys/revoke", "")
	var before []map[string]any
	paths := []string{"/updates", "/updates/deployments", "/updates/devices", "/updates/rootkeys"}
	for _, path := range paths {
		before = append(before, p.good("GET", path, ""))
	}
	require.Zero(t, p.stop())
	p = start(t, args...)
	for i, path := range paths {
		require.Equal(t, before[i], p.good("GET", path, ""), path)
	}
}
