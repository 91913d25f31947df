package servicefront_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// schedule puts a job, which must be accepted.
func schedule(p *hubtest.Poster, id, body string) map[string]any {
	p.T.Helper()
	return p.Do("PUT", "/jobs/v2/"+id+hubtest.Version, body).Object(p.T)
}

// job returns the status of a job and its counts: all, succeeded, failed, running, pending.
func job(p *hubtest.Poster, id string) (status string, counts []any) {
	p.T.Helper()
	doc := p.Do("GET", "/jobs/v2/"+id+hubtest.Version, "").Object(p.T)
	s := doc["deviceJobStatistics"].(map[string]any)
	return doc["status"].(string), []any{s["deviceCount"], s["succeededCount"], s["failedCount"], s["runningCount"],
		s["pendingCount"]}
}

// listOf reads an array.
func listOf(r hubtest.Reply, t testing.TB, kind string) (ids []string) {
	t.Helper()
	require.Equal(t, 200, r.StatusCode, r.Text)
	require.Equal(t, kind, r.Header.Get("x-ms-item-type"))
	var all []struct{ DeviceID, JobID string }
	require.NoError(t, json.Unmarshal([]byte(r.Text), &all), r.Text)
	for _, d := range all {
		ids = append(ids, strings.TrimSuffix(d.JobID+"/"+d.DeviceID, "/"))
	}
	return ids
}

func TestAJobChangesTwins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := fleet(t)
		made := schedule(p, "j1", `{"jobId":"j1","type":"scheduleUpdateTwin","queryCondition":"tags.site = 'Ulm'",
			"updateTwin":{"etag":"*","tags":{"seen":true},"properties":{"desired":{"x":1}}},"startTime":null}`)
		require.Equal(t, "queued", made["status"])
		require.Equal(t, "tags.site = 'Ulm'", made["queryCondition"])
		require.EqualValues(t, 3600, made["maxExecutionTimeInSeconds"])
		zero := schedule(p, "j0", `{"type":"scheduleUpdateTwin","queryCondition":"tags.site = 'none'",
			"updateTwin":{"tags":{"seen":true}},"startTime":"0001-01-01T00:00:00Z"}`)
		require.Equal(t, made["startTime"], zero["startTime"])
		synctest.Wait()
		status, counts := job(p, "j1")
		require.Equal(t, "completed", status)
		require.Equal(t, []any{2.0, 2.0, 0.0, 0.0, 0.0}, counts)
		for _, id := range []string{"dev-1", "dev-2"} {
			twin := hubtest.Twin(t, h, id)
			require.Contains(t, string(twin.Desired), `"x":1`)
			require.Contains(t, string(twin.Tags), `"seen":true`)
		}
		require.JSONEq(t, `{}`, hubtest.Desired(t, h, "dev-3"))
		doc := p.Do("GET", "/jobs/v2/j1"+hubtest.Version, "").Object(t)
		require.Equal(t, map[string]any{"seen": true}, doc["updateTwin"].(map[string]any)["tags"])
		require.NotEmpty(t, doc["endTime"])

		r := queryFor(p, "SELECT * FROM devices.jobs WHERE devices.jobs.jobId = 'j1' AND devices.jobs.status = 'completed'")
		require.Equal(t, []string{"j1/dev-1", "j1/dev-2"}, listOf(r, t, "DeviceJob"))
		r = queryFor(p, "SELECT jobType, COUNT() AS n FROM devices.jobs GROUP BY jobType")
		require.JSONEq(t, `[{"jobType":"scheduleUpdateTwin","n":2}]`, r.Text)
		first := queryFor(p, "SELECT * FROM devices.jobs", "x-ms-max-item-count", "1")
		require.Equal(t, []string{"j1/dev-1"}, listOf(first, t, "DeviceJob"))
		second := queryFor(p, "SELECT * FROM devices.jobs", "x-ms-continuation", first.Header.Get("x-ms-continuation"))
		require.Equal(t, []string{"j1/dev-2"}, listOf(second, t, "DeviceJob"))
		require.Empty(t, second.Header.Get("x-ms-continuation"))

		schedule(p, "stale", `{"type":"scheduleUpdateTwin","queryCondition":"deviceId = 'dev-1'",
			"updateTwin":{"etag":"AAAA","tags":{"never":true}}}`)
		synctest.Wait()
		status, counts = job(p, "stale")
		require.Equal(t, "completed", status)
		require.Equal(t, []any{1.0, 0.0, 1.0, 0.0, 0.0}, counts)
		r = queryFor(p, "SELECT error.code AS c FROM devices.jobs WHERE jobId = 'stale'")
		require.JSONEq(t, `[{"c":"PreconditionFailed"}]`, r.Text)
	})
}

func TestAJobCallsMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := fleet(t)
		d := hubtest.Registered(t, h, "dev-1")
		w := hubtest.Login(t, h, d)
		w.Subscribe(1, "$iothub/methods/POST/#")
		made := schedule(p, "j1", `{"type":"scheduleDeviceMethod","queryCondition":"deviceId IN ['dev-1', 'dev-2']",
			"cloudToDeviceMethod":{"methodName":"reboot","payload":{"in":5},"responseTimeoutInSeconds":20}}`)
		require.Equal(t, "scheduleDeviceMethod", made["type"])
		rid, payload := hubtest.Asked(w, "reboot")
		require.JSONEq(t, `{"in":5}`, payload)
		synctest.Wait() // the other device is found off-line at the same time
		status, counts := job(p, "j1")
		require.Equal(t, "running", status)
		require.Equal(t, []any{2.0, 0.0, 1.0, 1.0, 0.0}, counts)
		hubtest.AnswerCall(w, 201, rid, `{"out":12345678901234567890}`)
		synctest.Wait()
		status, counts = job(p, "j1")
		require.Equal(t, "completed", status)
		require.Equal(t, []any{2.0, 1.0, 1.0, 0.0, 0.0}, counts)
		r := queryFor(p, "SELECT deviceId, outcome, error.code AS code FROM devices.jobs")
		require.Contains(t, r.Text, "12345678901234567890")
		require.JSONEq(t, `[{"deviceId":"dev-1","outcome":{"deviceMethodResponse":{"status":201,
			"payload":{"out":12345678901234567890}}}},{"deviceId":"dev-2","code":"DeviceNotOnline"}]`, r.Text)
	})
}

func TestScheduledJobsStartInTimeAndCanBeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := fleet(t)
		body := func(after time.Duration) string {
			return fmt.Sprintf(`{"type":"scheduleUpdateTwin","queryCondition":"*","updateTwin":{"tags":{"late":%q}},
				"startTime":%q}`, after, time.Now().Add(after).UTC().Format(time.RFC3339))
		}
		require.Equal(t, "scheduled", schedule(p, "soon", body(30*time.Minute))["status"])
		require.Equal(t, "scheduled", schedule(p, "later", body(50*time.Minute))["status"])
		time.Sleep(30*time.Minute - time.Second)
		status, _ := job(p, "soon")
		require.Equal(t, "scheduled", status)
		_, err := h.AddDevice("dev-6") // the condition is evaluated at the start
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		status, counts := job(p, "soon")
		require.Equal(t, "completed", status)
		require.EqualValues(t, 6, counts[0])

		require.Equal(t, "cancelled", p.Post("/jobs/v2/later/cancel"+hubtest.Version, "").Object(t)["status"])
		p.Post("/jobs/v2/later/cancel"+hubtest.Version, "").RefusedOldForm(t, 405102)
		p.Post("/jobs/v2/soon/cancel"+hubtest.Version, "").RefusedOldForm(t, 405102)
		time.Sleep(30 * time.Minute)
		status, counts = job(p, "later")
		require.Equal(t, "cancelled", status)
		require.EqualValues(t, 0, counts[0])

		query := func(more string, header ...string) hubtest.Reply {
			return p.Do("GET", "/jobs/v2/query"+hubtest.Version+more, "", header...)
		}
		require.Equal(t, []string{"soon", "later"}, listOf(query(""), t, "JobResponse"))
		require.Equal(t, []string{"later"}, listOf(query("&jobStatus=cancelled"), t, "JobResponse"))
		require.Equal(t, []string{"soon"}, listOf(query("&jobType=scheduleUpdateTwin&jobStatus=Completed"), t, "JobResponse"))
		require.Empty(t, listOf(query("&jobType=scheduleDeviceMethod"), t, "JobResponse"))
		first := query("", "x-ms-max-item-count", "1")
		next := first.Header.Get("x-ms-continuation")
		require.Equal(t, []string{"later"}, listOf(query("", "x-ms-continuation", next), t, "JobResponse"))
		query("&jobStatus=completed", "x-ms-continuation", next).RefusedOldForm(t, 400004)
	})
}

// A job that takes too long fails: the calls that run are given up, and further devices are not
// called.
func TestAJobHasATimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := fleet(t)
		for i := range 20 {
			hubtest.AddDevice(t, h, fmt.Sprint("more-", i))
		}
		method := `{"type":"scheduleDeviceMethod","queryCondition":"*","maxExecutionTimeInSeconds":60,
			"cloudToDeviceMethod":{"methodName":"m","connectTimeoutInSeconds":200}}`
		schedule(p, "slow", method)
		synctest.Wait()
		_, counts := job(p, "slow")
		require.Equal(t, []any{25.0, 0.0, 0.0, 8.0, 17.0}, counts)
		time.Sleep(time.Minute)
		synctest.Wait()
		status, counts := job(p, "slow")
		require.Equal(t, "failed", status)
		require.Equal(t, []any{25.0, 0.0, 25.0, 0.0, 0.0}, counts)

		schedule(p, "cancelled", method)
		synctest.Wait()
		p.Post("/jobs/v2/cancelled/cancel"+hubtest.Version, "").Object(t)
		synctest.Wait()
		status, _ = job(p, "cancelled")
		require.Equal(t, "cancelled", status)
		r := queryFor(p, "SELECT COUNT() AS n FROM devices.jobs WHERE status = 'canceled'")
		require.JSONEq(t, `[{"n":25}]`, r.Text)
		schedule(p, "open", method) // Close ends it
		h.Reset()
		p.Do("GET", "/jobs/v2/open"+hubtest.Version, "").RefusedOldForm(t, 404002)
		schedule(p, "open", method)
	})
}

func TestJobsAreBounded(t *testing.T) {
	hubtest.InBubble(t, &testbroker.Options{Keep: 10}, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		p := hubtest.BackEnd(t, h, hubdata.RightAll)
		for i := range 20 {
			schedule(p, fmt.Sprint("job-", i),
				`{"type":"scheduleUpdateTwin","queryCondition":"*","updateTwin":{"tags":{"a":1}}}`)
			synctest.Wait()
		}
		var want []string
		for i := 15; i < 20; i++ { // each has a state of its own, and one of its device
			want = append(want, fmt.Sprint("job-", i))
		}
		require.Equal(t, want, listOf(p.Do("GET", "/jobs/v2/query"+hubtest.Version, ""), t, "JobResponse"))

		later := fmt.Sprintf(`{"type":"scheduleUpdateTwin","queryCondition":"*","updateTwin":{"tags":{"a":1}},
			"startTime":%q}`,
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		for i := range 100 {
			schedule(p, fmt.Sprint("later-", i), later)
		}
		p.Do("PUT", "/jobs/v2/one-more"+hubtest.Version, later).RefusedOldForm(t, 429004)
		p.Do("PUT", "/jobs/v2/later-1"+hubtest.Version, later).RefusedOldForm(t, 409104)
	})
}

func TestBadJobsAreRefused(t *testing.T) {
	_, p := fleet(t)
	update := `"type":"scheduleUpdateTwin","updateTwin":{"tags":{"a":1}}`
	for _, body := range []string{
		`{}`, `{"type":"export","queryCondition":"*"}`, `{` + update + `}`,
		`{` + update + `,"queryCondition":"tags.group = 1"}`,
		`{` + update + `,"queryCondition":"FROM devices.jobs"}`,
		`{` + update + `,"queryCondition":"*","jobId":"other"}`,
		`{` + update + `,"queryCondition":"*","startTime":"soon"}`,
		`{` + update + `,"queryCondition":"*","startTime":"9999-12-31T23:59:59-01:00"}`,
		`{` + update + `,"queryCondition":"*","startTime":"0001-01-01T00:00:00+01:00"}`,
		`{` + update + `,"queryCondition":"*","maxExecutionTimeInSeconds":-1}`,
		`{` + update + `,"queryCondition":"*","maxExecutionTimeInSeconds":9999999999}`,
		`{"queryCondition":"*","type":"scheduleUpdateTwin"}`,
		`{"queryCondition":"*","type":"scheduleUpdateTwin","updateTwin":[]}`,
		`{"queryCondition":"*","type":"scheduleUpdateTwin","updateTwin":{}}`,
		`{"queryCondition":"*","type":"scheduleUpdateTwin","updateTwin":{"tags":1}}`,
		`{"queryCondition":"*","type":"scheduleUpdateTwin","updateTwin":{"tags":{"a b":1}}}`,
		`{"queryCondition":"*","type":"scheduleUpdateTwin","updateTwin":{"properties":{"desired":{"a.b":1}}}}`,
		`{"queryCondition":"*","type":"scheduleDeviceMethod"}`,
		`{"queryCondition":"*","type":"scheduleDeviceMethod","cloudToDeviceMethod":{}}`,
		`{"queryCondition":"*","type":"scheduleDeviceMethod","cloudToDeviceMethod":{"methodName":"a b"}}`,
		`{"queryCondition":"*","type":"scheduleDeviceMethod","cloudToDeviceMethod":{"methodName":"a",
			"responseTimeoutInSeconds":1}}`,
	} {
		p.Do("PUT", "/jobs/v2/j"+hubtest.Version, body).RefusedOldForm(t, 400004)
	}
	p.Do("PUT", "/jobs/v2/a%20b"+hubtest.Version, `{`+update+`,"queryCondition":"*"}`).RefusedOldForm(t, 400004)
	p.Do("GET", "/jobs/v2/j"+hubtest.Version, "").RefusedOldForm(t, 404002)
	p.Post("/jobs/v2/j/cancel"+hubtest.Version, "").RefusedOldForm(t, 404002)
}
