package agent_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// sample is a manifest of the service's own tests.
const sample = `{"manifestVersion":"4","updateId":{"provider":"Contoso","name":"Foobar","version":"1.1"},` +
	`"compatibility":[{"deviceManufacturer":"Contoso","deviceModel":"Foobar"}],"instructions":{"steps":[{` +
	`"handler":"microsoft/swupdate:1","files":["f2f4a804ca17afbae"],"handlerProperties":{"installedCriteria":"1.0"}}]},` +
	`"files":{"f2f4a804ca17afbae":{"fileName":"iot-middleware-sample-adu-v1.1","sizeInBytes":844976,"hashes":{` +
	`"sha256":"xsoCnYAMkZZ7m9RL9Vyg9jKfFehCNxyuPFaJVM/WBi0="}}},"createdDateTime":"2022-07-07T03:02:48.8449038Z"}`

func TestTheServicesOwnManifestIsRead(t *testing.T) {
	m, err := agent.ParseManifest([]byte(sample))
	require.NoError(t, err)
	require.Equal(t, "Contoso/Foobar 1.1", m.ID.String())
	require.Equal(t, []agent.Properties{{{"deviceManufacturer", "Contoso"}, {"deviceModel", "Foobar"}}}, m.Compatibility)
	require.Equal(t, []agent.Step{{Handler: "microsoft/swupdate:1", Files: []string{"f2f4a804ca17afbae"},
		InstalledCriteria: "1.0", Properties: []byte(`{"installedCriteria":"1.0"}`)}}, m.Steps)
	require.Len(t, m.Files, 1)
	f := m.Files[0]
	require.Equal(t, "iot-middleware-sample-adu-v1.1", f.Name)
	require.Equal(t, int64(844976), f.Size)
	require.Equal(t, "xsoCnYAMkZZ7m9RL9Vyg9jKfFehCNxyuPFaJVM/WBi0=", base64.StdEncoding.EncodeToString(f.SHA256[:]))
}

const rich = `{"manifestVersion":"5","x":[{}],"updateId":{"provider":"c","name":"n","version":"2.0","x":1},` +
	`"compatibility":[{"model":"a"},{"model":"b"}],"instructions":{"x":{},"steps":[` +
	`{"type":"inline","description":"d","x":[1,{}],"handler":"microsoft/swupdate:1","files":["f"],` +
	`"handlerProperties":{"installedCriteria":"c","x":{"y":[]}}},` +
	`{"type":"reference","detachedManifestFileId":"child"}]},"files":{` +
	`"f":{"fileName":"a.swu","sizeInBytes":3,"x":null,"mimeType":"m","hashes":{"sha256":"HASH","sha512":"?"},` +
	`"relatedFiles":{"r":{"fileName":"a.diff","sizeInBytes":1,"hashes":{"sha256":"HASH"},"properties":{"from":"b"}}},` +
	`"downloadHandler":{"id":"microsoft/delta:1","x":0}},` +
	`"child":{"fileName":"child.json","sizeInBytes":0,"hashes":{"sha256":"HASH"}}}}`

func richManifest() string {
	return strings.ReplaceAll(rich, "HASH", base64.StdEncoding.EncodeToString(make([]byte, 32)))
}

func TestReferenceStepsAndDeltasAreKept(t *testing.T) {
	m, err := agent.ParseManifest([]byte(richManifest()))
	require.NoError(t, err)
	require.Equal(t, agent.Step{Manifest: "child"}, m.Steps[1])
	require.Equal(t, "microsoft/delta:1", m.Files[0].DownloadHandler)
	require.Equal(t, []agent.File{{ID: "r", Name: "a.diff", Size: 1, Properties: []byte(`{"from":"b"}`)}},
		m.Files[0].Related)
}

func TestManifestErrorsNameTheMember(t *testing.T) {
	repeat := func(element string, n int) string { return strings.TrimSuffix(strings.Repeat(element+",", n), ",") }
	for _, row := range []struct{ old, replacement, want string }{
		{`{"manifestVersion"`, `["manifestVersion"`, "no JSON object"},
		{`"x":[{}]`, "\"x\":\"\xff\"", "UTF-8"},
		{`"x":[{}]`, `"x":"` + strings.Repeat("x", agent.MaxManifest) + `"`, "64 KB"},
		{`"manifestVersion":"5"`, `"manifestVersion":"3"`, "manifestVersion is not 4 or 5"},
		{`"provider":"c"`, `"provider":""`, "updateId.provider is missing"},
		{`"version":"2.0"`, `"version":2`, "updateId.version is no text"},
		{`"name":"n",`, ``, "updateId.name is missing"},
		{`"name":"n"`, `"name":"` + strings.Repeat("n", 256) + `"`, "updateId.name is no text of at most 255"},
		{`[{"model":"a"},{"model":"b"}]`, `[]`, "compatibility is missing or empty"},
		{`[{"model":"a"},{"model":"b"}]`, `[` + repeat("{}", 65) + `]`, "compatibility[0] has no properties"},
		{`[{"model":"a"},{"model":"b"}]`, `[` + repeat(`{"a":"b"}`, 65) + `]`, "at most 64 elements"},
		{`{"model":"b"}`, `{"model":7}`, "compatibility[1].model is no text"},
		{`{"model":"b"}`, `"b"`, "compatibility[1] is no object"},
		{`"steps":[`, `"other":[`, "instructions.steps is missing"},
		{`"type":"inline"`, `"type":"other"`, "steps[0].type is not inline or reference"},
		{`"handler":"microsoft/swupdate:1",`, ``, "steps[0].handler is missing"},
		{`"files":["f"]`, `"files":["g"]`, "steps[0].files[0] is not the id of a file"},
		{`"files":["f"]`, `"files":{}`, "steps[0].files is no array"},
		{`"files":["f"]`, `"files":[` + repeat(`"f"`, agent.MaxFiles+1) + `]`, "at most 128 elements"},
		{`"installedCriteria":"c"`, `"installedCriteria":[]`, "installedCriteria is no text"},
		{`"handlerProperties":{"installedCriteria":"c","x":{"y":[]}}`, `"handlerProperties":7`, "is no object"},
		{`"detachedManifestFileId":"child"`, `"x":0`, "steps[1].detachedManifestFileId is missing"},
		{`"detachedManifestFileId":"child"`, `"detachedManifestFileId":"c"`, "steps[1].detachedManifestFileId is not the id"},
		{`{"type":"reference","detachedManifestFileId":"child"}`, repeat(`{"handler":"h"}`, agent.MaxSteps),
			"at most 32 elements"},
		{`"fileName":"a.swu"`, `"fileName":"../a"`, "files.f.fileName is no plain file name"},
		{`"fileName":"a.swu"`, `"fileName":".."`, "files.f.fileName is no plain file name"},
		{`"sizeInBytes":3`, `"sizeInBytes":-1`, "files.f.sizeInBytes"},
		{`"sizeInBytes":3`, `"sizeInBytes":1e3`, "files.f.sizeInBytes"},
		{`"sizeInBytes":3`, `"sizeInBytes":1099511627777`, "files.f.sizeInBytes"},
		{`"hashes":{"sha256":"A`, `"hashes":{"sha256":"-`, "files.f.hashes.sha256"},
		{`"hashes":{"sha256":"AAAA`, `"hashes":{"sha256":"`, "files.f.hashes.sha256"},
		{`"child":{"fileName"`, `"f":{"fileName"`, "that of another file"},
		{`"properties":{"from":"b"}`, `"properties":[]`, "files.f.relatedFiles.r.properties is no object"},
		{`"id":"microsoft/delta:1"`, `"id":1`, "files.f.downloadHandler.id is no text"},
	} {
		text := strings.Replace(richManifest(), row.old, row.replacement, 1)
		require.NotEqual(t, richManifest(), text, row.old)
		_, err := agent.ParseManifest([]byte(text))
		require.ErrorContains(t, err, row.want, row.replacement)
		require.Equal(t, transport.Invalid, transport.KindOf(err))
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte(richManifest()))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := agent.ParseManifest(text)
		if err != nil {
			return
		}
		if m.ID.Provider == "" || len(m.Compatibility) == 0 || len(m.Steps) == 0 || len(m.Steps) > agent.MaxSteps {
			t.Errorf("accepted %q", text)
		}
		ids := map[string]bool{}
		for _, f := range m.Files {
			ids[f.ID] = true
		}
		for _, s := range m.Steps {
			for _, id := range s.Files {
				if !ids[id] {
					t.Errorf("accepted %q without file %q", text, id)
				}
			}
		}
	})
}

func ExampleParseManifest() {
	m, err := agent.ParseManifest([]byte(sample))
	if err != nil {
		panic(err)
	}
	fmt.Println(m.ID, m.Steps[0].Handler, m.Files[0].Size)
	// Output: Contoso/Foobar 1.1 microsoft/swupdate:1 844976
}
