package servicefront_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// A transferer is a back end that imports from the container c-1 of a hub, and exports to it.
type transferer struct {
	*hubtest.Poster
	store     *hubtest.Storage
	container string // its URL
}

func inTransfer(t *testing.T, test func(t *testing.T, h *testbroker.Hub, p *transferer)) {
	hubtest.InStorage(t, func(t *testing.T, h *testbroker.Hub, s *hubtest.Storage) {
		container, err := h.ContainerURL("any.example.test", "c-1", time.Hour)
		require.NoError(t, err)
		test(t, h, &transferer{hubtest.BackEnd(t, h, hubdata.RightAll), s, container})
	})
}

// transfer begins a job and returns its document at the end.
func (p *transferer) transfer(fields map[string]any) map[string]any {
	p.T.Helper()
	raw, err := json.Marshal(fields)
	require.NoError(p.T, err)
	made := p.Post("/jobs/create"+hubtest.Version, string(raw)).Object(p.T)
	require.Equal(p.T, "enqueued", made["status"])
	synctest.Wait()
	return p.Do("GET", "/jobs/"+made["jobId"].(string)+hubtest.Version, "").Object(p.T)
}

// load imports lines, and returns the refused ones as "line device code".
func (p *transferer) load(lines ...string) (refused []string) {
	p.T.Helper()
	p.store.Put("devices.txt", strings.Join(lines, "\n"))
	done := p.transfer(map[string]any{"type": "import", "inputBlobContainerUri": p.container,
		"outputBlobContainerUri": p.container})
	require.Equal(p.T, []any{"completed", 100.0}, []any{done["status"], done["progress"]}, done)
	log := p.store.Request("GET", "/store/c-1/importErrors.log", "")
	if log.StatusCode == 404 {
		return nil
	}
	for line := range strings.Lines(log.Text) {
		var e struct {
			Line               int
			DeviceID, ModuleID string
			ErrorCode          int
			ErrorStatus        string
		}
		require.NoError(p.T, json.Unmarshal([]byte(line), &e), line)
		require.NotEmpty(p.T, e.ErrorStatus)
		refused = append(refused, fmt.Sprintf("%d %s%s %d", e.Line, e.DeviceID, e.ModuleID, e.ErrorCode))
	}
	return refused
}

// dump exports the registry, and returns its lines.
func (p *transferer) dump(excludeKeys bool) (lines []string) {
	p.T.Helper()
	done := p.transfer(map[string]any{"type": "export", "outputBlobContainerUri": p.container, "outputBlobName": "out/all",
		"excludeKeysInExport": excludeKeys})
	require.Equal(p.T, []any{"completed", excludeKeys, "out/all"},
		[]any{done["status"], done["excludeKeysInExport"], done["outputBlobName"]}, done)
	return strings.Split(strings.TrimSpace(p.store.Request("GET", "/store/c-1/out/all", "").Text), "\n")
}

func TestAnExportHasAllDevices(t *testing.T) {
	inTransfer(t, func(t *testing.T, h *testbroker.Hub, p *transferer) {
		hubtest.AddModule(t, h, "dev-1", "cam")
		require.NoError(t, h.PatchTags("dev-1", `{"site":"Ulm"}`))
		hubtest.PatchDesired(t, h, "dev-1", `{"rate":60}`)
		dev := hubtest.Registered(t, h, "dev-1")
		lines := p.dump(false)
		require.Len(t, lines, 2)
		var d map[string]any
		require.NoError(t, json.Unmarshal([]byte(lines[0]), &d))
		require.Equal(t, []any{"dev-1", "enabled"}, []any{d["id"], d["status"]})
		require.Equal(t, map[string]any{"primaryKey": dev.PrimaryKey, "secondaryKey": dev.SecondaryKey},
			d["authentication"].(map[string]any)["symmetricKey"])
		require.Equal(t, map[string]any{"desired": map[string]any{"rate": 60.0}, "reported": map[string]any{}},
			d["properties"])
		require.Equal(t, map[string]any{"site": "Ulm"}, d["tags"])
		require.Contains(t, lines[1], `"moduleId":"cam"`)

		lines = p.dump(true)
		require.NotContains(t, lines[0], dev.PrimaryKey)
		require.Contains(t, lines[0], `"authentication":null`)

		// What was exported can be imported by a hub without it.
		whole := p.dump(false)
		require.NoError(t, h.RemoveDevice("dev-1"))
		require.Empty(t, p.load(whole...))
		again := hubtest.Registered(t, h, "dev-1")
		require.Equal(t, dev.PrimaryKey, again.PrimaryKey)
		twin := hubtest.Twin(t, h, "dev-1")
		require.JSONEq(t, `{"rate":60}`, string(twin.Desired))
		require.JSONEq(t, `{"site":"Ulm"}`, string(twin.Tags))
		hubtest.Registered(t, h, "dev-1/cam")
	})
}

func TestAnImportHasModes(t *testing.T) {
	inTransfer(t, func(t *testing.T, h *testbroker.Hub, p *transferer) {
		etag := func(id string) string {
			return p.Do("GET", "/devices/"+id+hubtest.Version, "").Object(t)["etag"].(string)
		}
		twin := func(id string) string {
			return p.Do("GET", "/twins/"+id+hubtest.Version, "").Object(t)["etag"].(string)
		}
		require.Empty(t, p.load(`{"id":"a","importMode":"create","tags":{"x":1},"properties":{"desired":{"y":2}}}`, "",
			`{"id":"b","importMode":"create","authentication":null}`))
		require.JSONEq(t, `{"y":2}`, hubtest.Desired(t, h, "a"))
		require.Equal(t, []string{"1 a 409001", "2 z 404001", "3 b 412001", "5  400004", "6 b 400004", "7 b 412001"}, p.load(
			`{"id":"a","importMode":"create"}`,
			`{"id":"z","importMode":"update"}`,
			`{"id":"b","importMode":"updateIfMatchETag","eTag":"x"}`,
			`{"id":"b","importMode":"updateIfMatchETag","eTag":"`+etag("b")+`","status":"disabled"}`,
			`{"id":`,
			`{"id":"b","importMode":"steal"}`,
			`{"id":"b","importMode":"updateTwinIfMatchETag","twinETag":"x","tags":{"x":1}}`,
		))
		d := hubtest.Registered(t, h, "b")
		require.True(t, d.Disabled)
		// Without an error the file of the earlier import is emptied.
		require.Empty(t, p.load(
			`{"id":"b","importMode":"updateTwinIfMatchETag","twinETag":"`+twin("b")+`","tags":{"x":1}}`,
			`{"id":"c"}`, `{"id":"c","importMode":"createOrUpdate","status":"disabled"}`,
			`{"id":"a","importMode":"updateTwin","properties":{"desired":{"y":null,"z":3}}}`,
			`{"id":"c","importMode":"delete"}`,
		))
		require.JSONEq(t, `{"z":3}`, hubtest.Desired(t, h, "a"))
		_, err := h.Device("c")
		require.ErrorIs(t, err, testbroker.ErrNotFound)
		require.Equal(t, []string{"1 w 400004"}, p.load(`{"id":"w","importMode":"create","tags":{"$w":1}}`),
			"its twin is refused, but it is registered")
		hubtest.Registered(t, h, "w")
		require.Equal(t, []string{"1 b 412001"}, p.load(`{"id":"b","importMode":"deleteIfMatchETag","eTag":"x"}`))
		require.Empty(t, p.load(`{"id":"b","importMode":"deleteIfMatchETag","eTag":"`+etag("b")+`"}`))
		_, err = h.Device("b")
		require.ErrorIs(t, err, testbroker.ErrNotFound)
	})
}

func TestTransfersThatFail(t *testing.T) {
	inTransfer(t, func(t *testing.T, h *testbroker.Hub, p *transferer) {
		done := p.transfer(map[string]any{"type": "import", "inputBlobContainerUri": p.container,
			"outputBlobContainerUri": p.container, "inputBlobName": "missing"})
		require.Equal(t, "failed", done["status"])
		require.Equal(t, "missing: The specified blob does not exist.", done["failureReason"])
		p.store.Put("devices.txt", `{"id":"`+strings.Repeat("x", 1<<20)+`"}`)
		done = p.transfer(map[string]any{"type": "import", "inputBlobContainerUri": p.container,
			"outputBlobContainerUri": p.container})
		require.Contains(t, done["failureReason"], "line 1: bufio.Scanner: token too long")

		var all []map[string]any
		require.NoError(t, json.Unmarshal([]byte(p.Do("GET", "/jobs"+hubtest.Version, "").Text), &all))
		require.Len(t, all, 2)
		require.NotContains(t, fmt.Sprint(all), "sig", "signatures are secret")
		require.Equal(t, "https://any.example.test/store/c-1", all[0]["inputBlobContainerUri"])
		require.Equal(t, 204, p.Do("DELETE", "/jobs/"+all[0]["jobId"].(string)+hubtest.Version, "").StatusCode)
		p.Do("GET", "/jobs/other"+hubtest.Version, "").RefusedOldForm(t, 404002)
		p.Do("DELETE", "/jobs/other"+hubtest.Version, "").RefusedOldForm(t, 404002)
		h.Reset()
		require.Equal(t, "[]", p.Do("GET", "/jobs"+hubtest.Version, "").Text)
	})
}

// However an import ends, the file of errors is its own, and says what it leaves out.
func TestTheFileOfErrorsIsThatOfTheNewestImport(t *testing.T) {
	inTransfer(t, func(t *testing.T, _ *testbroker.Hub, p *transferer) {
		fields := map[string]any{"type": "import", "inputBlobContainerUri": p.container,
			"outputBlobContainerUri": p.container}
		run := func(text string) (status any, log []string) {
			p.store.Put("devices.txt", text)
			status = p.transfer(fields)["status"]
			body := p.store.Request("GET", "/store/c-1/importErrors.log", "").Text
			return status, slices.Collect(strings.Lines(body))
		}
		long := strings.Repeat("y", 1<<20+1)
		status, log := run("x\n" + long)
		require.Equal(t, "failed", status)
		require.Len(t, log, 1)
		require.Contains(t, log[0], `"line":1`)
		status, log = run("{\"id\":\"was\"}\n" + long)
		require.Equal(t, "failed", status)
		require.Empty(t, log)

		status, log = run(strings.Repeat("x\n", 200_000))
		require.Equal(t, "completed", status)
		require.Less(t, len(log), 200_000)
		last := log[len(log)-1]
		require.Contains(t, last, `"line":200000`)
		require.Contains(t, last, fmt.Sprintf("%d more lines", 200_000-(len(log)-1)))

		fields["inputBlobName"] = "missing"
		status, log = run("")
		require.Equal(t, "failed", status)
		require.Empty(t, log)
	})
}

// The hub accesses its own storage only, and only as the signature of the URI allows.
func TestContainersOfOthersAreRefused(t *testing.T) {
	inTransfer(t, func(t *testing.T, h *testbroker.Hub, p *transferer) {
		try := func(fields map[string]any) hubtest.Reply {
			all := map[string]any{"type": "import", "inputBlobContainerUri": p.container,
				"outputBlobContainerUri": p.container}
			for k, v := range fields {
				all[k] = v
			}
			raw, err := json.Marshal(all)
			require.NoError(t, err)
			return p.Post("/jobs/create"+hubtest.Version, string(raw))
		}
		_, query, _ := strings.Cut(p.container, "?")
		altered := strings.Replace(p.container, "sp=racwdl", "sp=r", 1)
		only := func(right string) string {
			return "https://any/store/c-1" + p.store.Sign("sr=c&sv=2020-12-06&se=2099-01-01&sp="+right)
		}
		for field, uris := range map[string][]string{
			"inputBlobContainerUri": {"", "x", "ftp://any/store/c-1?" + query, "https://a.blob.core.example/c-1?" + query,
				"https://any/store/c-1/a?" + query, "https://any/store/c-2?" + query, "https://any/store/c-1", altered, only("w")},
			"outputBlobContainerUri": {"", "https://169.254.169.254/latest", altered, only("r")},
			"inputBlobName":          {"a/../b", "\x01"},
		} {
			for _, uri := range uris {
				r := try(map[string]any{field: uri})
				r.RefusedOldForm(t, 400008)
				require.NotContains(t, r.Text, "sig=", uri)
			}
		}
		for field, v := range map[string]any{"type": "steal", "storageAuthenticationType": "magic",
			"includeConfigurations": true} {
			try(map[string]any{field: v}).RefusedOldForm(t, 400004)
		}
		require.Equal(t, 202, p.store.Request("DELETE", "/store/c-1?restype=container", "").StatusCode)
		r := try(nil)
		r.RefusedOldForm(t, 400008)
		require.Contains(t, r.Text, "outputBlobContainerUri: The specified container does not exist.")
	})
}

// With its identity the hub may access its own containers without signatures.
func TestAHubHasAnIdentity(t *testing.T) {
	inTransfer(t, func(t *testing.T, h *testbroker.Hub, p *transferer) {
		fields := map[string]any{"type": "export", "storageAuthenticationType": "IdentityBased",
			"outputBlobContainerUri": "https://" + h.HostName() + "/store/c-1"}
		require.Equal(t, []any{"completed", "identityBased"},
			[]any{p.transfer(fields)["status"], p.transfer(fields)["storageAuthenticationType"]})
		r := p.Post("/jobs/create"+hubtest.Version, `{"type":"export","storageAuthenticationType":"identityBased",
			"outputBlobContainerUri":"https://other.example.test/store/c-1"}`)
		r.RefusedOldForm(t, 400008)
		reader := hubtest.BackEnd(t, h, hubdata.RightRegistryRead)
		require.Equal(t, 200, reader.Do("GET", "/jobs"+hubtest.Version, "").StatusCode)
		reader.Post("/jobs/create"+hubtest.Version, `{}`).RefusedOldForm(t, 401003)
	})
}
