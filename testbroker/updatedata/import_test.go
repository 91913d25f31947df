package updatedata_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// toaster is the shape that the tools of the service write.
const toaster = `{
  "$schema": "https://json.schemastore.org/azure-deviceupdate-import-manifest-5.0.json",
  "updateId": {"provider": "Contoso", "name": "Toaster", "version": "1.0"},
  "isDeployable": true,
  "compatibility": [{"manufacturer": "Contoso", "model": "Toaster"}],
  "instructions": {"steps": [
    {"handler": "microsoft/swupdate:1", "files": ["firmware.swu"], "handlerProperties": {"installedCriteria": "1.0"}},
    {"type": "reference", "updateId": {"provider": "Contoso", "name": "Lever", "version": "2.0"}}]},
  "files": [{"filename": "firmware.swu", "sizeInBytes": 5,
    "hashes": {"sha256": "YQXWzHavQAMl6U1YjOURvlv9u3O0N9xR7KQ5F9ekPj0="},
    "relatedFiles": [{"filename": "delta", "sizeInBytes": 5,
      "hashes": {"sha256": "YQXWzHavQAMl6U1YjOURvlv9u3O0N9xR7KQ5F9ekPj0="},
      "properties": {"microsoft.sourceFileHashAlgorithm": "sha256"}}],
    "downloadHandler": {"id": "microsoft/delta:1"}}],
  "createdDateTime": "2022-01-19T06:23:52.6996916Z",
  "manifestVersion": "5.0"
}`

func image(string) ([]byte, error) { return []byte("image"), nil }

func TestParseImportReadsWhatTheToolsWrite(t *testing.T) {
	u, err := updatedata.ParseImport([]byte(toaster), image)
	require.NoError(t, err)
	require.Equal(t, "Contoso/Toaster/1.0", u.ID.String())
	require.Equal(t, "5", u.Version)
	require.JSONEq(t, `{"installedCriteria":"1.0"}`, string(u.Steps[0].Properties))
	require.Equal(t, "Contoso/Lever/2.0", u.Steps[1].Reference.String())
	require.Equal(t, "microsoft/delta:1", u.Files[0].DownloadHandler)
	require.Equal(t, "image", string(u.Files[0].Related[0].Content))
}

func TestParseImportRefusesWhatTheServiceRefuses(t *testing.T) {
	for name, row := range map[string]struct{ old, other, want string }{
		"no JSON":         {toaster, "{", "unexpected EOF"},
		"another member":  {`"isDeployable"`, `"deployable"`, `unknown field "deployable"`},
		"another version": {`"5.0"`, `"3.0"`, "give 4.0 or 5.0"},
		"a size":          {`"sizeInBytes": 5`, `"sizeInBytes": 6`, "not sizeInBytes 6"},
		"a hash":          {"YQXW", "YQXX", "make the manifest anew"},
		"a provider":      {`"provider": "Contoso", "name": "T`, `"provider": "a b", "name": "T`, `provider "a b"`},
		"a short version": {`"1.0"}`, `"1"}`, "give 2 to 4 numbers"},
		"a file of none":  {`["firmware.swu"]`, `["other"]`, `file "other" is not one of the update`},
		"no handler name": {"microsoft/swupdate:1", "swupdate", "give one such as"},
		"no properties":   {`{"manufacturer": "Contoso", "model": "Toaster"}`, `{}`, "give 1 to 5"},
		"no sets":         {`[{"manufacturer": "Contoso", "model": "Toaster"}]`, `[]`, "give 1 to 10"},
		"an early delta":  {`{"id": "microsoft/delta:1"}`, `null`, "name a download handler too"},
		"a doubled name":  {`"filename": "delta"`, `"filename": "firmware.swu"`, "two files"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := updatedata.ParseImport([]byte(strings.Replace(toaster, row.old, row.other, 1)), image)
			require.ErrorContains(t, err, row.want)
		})
	}
	gone := errors.New("gone")
	_, err := updatedata.ParseImport([]byte(toaster), func(string) ([]byte, error) { return nil, gone })
	require.ErrorIs(t, err, gone)
}

// FuzzParseImport reads any text. What it takes passes the checks of an update.
func FuzzParseImport(f *testing.F) {
	f.Add([]byte(toaster))
	f.Add([]byte(`{"manifestVersion":"4.0","files":[{"relatedFiles":[{}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		u, err := updatedata.ParseImport(text, image)
		if err == nil && u.Check() != nil {
			t.Fatalf("%s: %v", text, u.Check())
		}
	})
}
