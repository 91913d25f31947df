package testbroker_test

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
)

// schedule puts a job, which must be accepted.
func (p *poster) schedule(id, body string) map[string]any {
	p.t.Helper()
	return p.do("PUT", "/jobs/v2/"+id+version, body).object(p.t)
}

// job returns the status of a job and its counts: all, succeeded, failed, running, pending.
func (p *poster) job(id string) (status string, counts []any) {
	p.t.Helper()
	doc := p.do("GET", "/jobs/v2/"+id+version, "").object(p.t)
	s := doc["deviceJobStatistics"].(map[string]any)
	return doc["status"].(string), []any{s["deviceCount"], s["succeededCount"], s["failedCount"], s["runningCount"],
		s["pendingCount"]}
}

// list reads an array.
func (r reply) list(t testing.TB, kind string) (ids []string) {
	t.Helper()
	require.Equal(t, 200, r.StatusCode, r.body)
	require.Equal(t, kind, r.Header.Get("x-ms-item-type"))
	var all []struct{ DeviceID, JobID string }
	require.NoError(t, json.Unmarshal([]byte(r.body), &all), r.body)
	for _, d := range all {
		ids = append(ids, strings.TrimSuffix(d.JobID+"/"+d.DeviceID, "/"))
	}
	return ids
}

func TestAJobChangesTwins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := fleet(t)
		made := p.schedule("j1", `{"jobId":"j1","type":"scheduleUpdateTwin","queryCondition":"tags.site = 'Ulm'",
			"updateTwin":{"etag":"*","tags":{"seen":true},"properties":{"desired":{"x":1}}},"startTime":null}`)
		require.Equal(t, "queued", made["status"])
		require.Equal(t, "tags.site = 'Ulm'", made["queryCondition"])
		require.EqualValues(t, 3600, made["maxExecutionTimeInSeconds"])
		synctest.Wait()
		status, counts := p.job("j1")
		require.Equal(t, "completed", status)
		require.Equal(t, []any{2.0, 2.0, 0.0, 0.0, 0.0}, counts)
		for _, id := range []string{"dev-1", "dev-2"} {
			twin, err := h.Twin(id)
			require.NoError(t, err)
			require.Contains(t, string(twin.Desired), `"x":1`)
			require.Contains(t, string(twin.Tags), `"seen":true`)
		}
		require.JSONEq(t, `{}`, desiredOf(t, h, "dev-3"))
		doc := p.do("GET", "/jobs/v2/j1"+version, "").object(t)
		require.Equal(t, map[string]any{"seen": true}, doc["updateTwin"].(map[string]any)["tags"])
		require.NotEmpty(t, doc["endTime"])

		r := p.queryFor("SELECT * FROM devices.jobs WHERE devices.jobs.jobId = 'j1' AND devices.jobs.status = 'completed'")
		require.Equal(t, []string{"j1/dev-1", "j1/dev-2"}, r.list(t, "DeviceJob"))
		r = p.queryFor("SELECT jobType, COUNT() AS n FROM devices.jobs GROUP BY jobType")
		require.JSONEq(t, `[{"jobType":"scheduleUpdateTwin","n":2}]`, r.body)
		first := p.queryFor("SELECT * FROM devices.jobs", "x-ms-max-item-count", "1")
		require.Equal(t, []string{"j1/dev-1"}, first.list(t, "DeviceJob"))
		second := p.queryFor("SELECT * FROM devices.jobs", "x-ms-continuation", first.Header.Get("x-ms-continuation"))
		require.Equal(t, []string{"j1/dev-2"}, second.list(t, "DeviceJob"))
		require.Empty(t, second.Header.Get("x-ms-continuation"))

		p.schedule("stale", `{"type":"scheduleUpdateTwin","queryCondition":"deviceId = 'dev-1'",
			"updateTwin":{"etag":"AAAA","tags":{"never":true}}}`)
		synctest.Wait()
		status, counts = p.job("stale")
		require.Equal(t, "completed", status)
		require.Equal(t, []any{1.0, 0.0, 1.0, 0.0, 0.0}, counts)
		r = p.queryFor("SELECT error.code AS c FROM devices.jobs WHERE jobId = 'stale'")
		require.JSONEq(t, `[{"c":"PreconditionFailed"}]`, r.body)
	})
}

func TestAJobCallsMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := fleet(t)
		d, err := h.Device("dev-1")
		require.NoError(t, err)
		w := login(t, h, d)
		w.subscribe(1, "$iothub/methods/POST/#")
		made := p.schedule("j1", `{"type":"scheduleDeviceMethod","queryCondition":"deviceId IN ['dev-1', 'dev-2']",
			"cloudToDeviceMethod":{"methodName":"reboot","payload":{"in":5},"responseTimeoutInSeconds":20}}`)
		require.Equal(t, "scheduleDeviceMethod", made["type"])
		rid, payload := w.asked("reboot")
		require.JSONEq(t, `{"in":5}`, payload)
		synctest.Wait() // the other device is found off-line at the same time
		status, counts := p.job("j1")
		require.Equal(t, "running", status)
		require.Equal(t, []any{2.0, 0.0, 1.0, 1.0, 0.0}, counts)
		w.answer(201, rid, `{"out":12345678901234567890}`)
		synctest.Wait()
		status, counts = p.job("j1")
		require.Equal(t, "completed", status)
		require.Equal(t, []any{2.0, 1.0, 1.0, 0.0, 0.0}, counts)
		r := p.queryFor("SELECT deviceId, outcome, error.code AS code FROM devices.jobs")
		require.Contains(t, r.body, "12345678901234567890")
		require.JSONEq(t, `[{"deviceId":"dev-1","outcome":{"deviceMethodResponse":{"status":201,
			"payload":{"out":12345678901234567890}}}},{"deviceId":"dev-2","code":"DeviceNotOnline"}]`, r.body)
	})
}

func TestScheduledJobsStartInTimeAndCanBeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := fleet(t)
		body := func(after time.Duration) string {
			return fmt.Sprintf(`{"type":"scheduleUpdateTwin","queryCondition":"*","updateTwin":{"tags":{"late":%q}},
				"startTime":%q}`, after, time.Now().Add(after).UTC().Format(time.RFC3339))
		}
		require.Equal(t, "scheduled", p.schedule("soon", body(30*time.Minute))["status"])
		require.Equal(t, "scheduled", p.schedule("later", body(50*time.Minute))["status"])
		time.Sleep(30*time.Minute - time.Second)
		status, _ := p.job("soon")
		require.Equal(t, "scheduled", status)
		_, err := h.AddDevice("dev-6") // the condition is evaluated at the start
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		status, counts := p.job("soon")
		require.Equal(t, "completed", status)
		require.EqualValues(t, 6, counts[0])

		require.Equal(t, "cancelled", p.post("/jobs/v2/later/cancel"+version, "").object(t)["status"])
		p.post("/jobs/v2/later/cancel"+version, "").refusedOldForm(t, 405102)
		p.post("/jobs/v2/soon/cancel"+version, "").refusedOldForm(t, 405102)
		time.Sleep(30 * time.Minute)
		status, counts = p.job("later")
		require.Equal(t, "cancelled", status)
		require.EqualValues(t, 0, counts[0])

		query := func(more string, header ...string) reply {
			return p.do("GET", "/jobs/v2/query"+version+more, "", header...)
		}
		require.Equal(t, []string{"soon", "later"}, query("").list(t, "JobResponse"))
		require.Equal(t, []string{"later"}, query("&jobStatus=cancelled").list(t, "JobResponse"))
		require.Equal(t, []string{"soon"}, query("&jobType=scheduleUpdateTwin&jobStatus=Completed").list(t, "JobResponse"))
		require.Empty(t, query("&jobType=scheduleDeviceMethod").list(t, "JobResponse"))
		first := query("", "x-ms-max-item-count", "1")
		next := first.Header.Get("x-ms-continuation")
		require.Equal(t, []string{"later"}, query("", "x-ms-continuation", next).list(t, "JobResponse"))
		query("&jobStatus=completed", "x-ms-continuation", next).refusedOldForm(t, 400004)
	})
}

// A job that takes too long fails: the calls that run are given up, and further devices are not
// called.
func TestAJobHasATimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := fleet(t)
		for i := range 20 {
			_, err := h.AddDevice(fmt.Sprint("more-", i))
			require.NoError(t, err)
		}
		method := `{"type":"scheduleDeviceMethod","queryCondition":"*","maxExecutionTimeInSeconds":60,
			"cloudToDeviceMethod":{"methodName":"m","connectTimeoutInSeconds":200}}`
		p.schedule("slow", method)
		synctest.Wait()
		_, counts := p.job("slow")
		require.Equal(t, []any{25.0, 0.0, 0.0, 8.0, 17.0}, counts)
		time.Sleep(time.Minute)
		synctest.Wait()
		status, counts := p.job("slow")
		require.Equal(t, "failed", status)
		require.Equal(t, []any{25.0, 0.0, 25.0, 0.0, 0.0}, counts)

		p.schedule("cancelled", method)
		synctest.Wait()
		p.post("/jobs/v2/cancelled/cancel"+version, "").object(t)
		synctest.Wait()
		status, _ = p.job("cancelled")
		require.Equal(t, "cancelled", status)
		r := p.queryFor("SELECT COUNT() AS n FROM devices.jobs WHERE status = 'canceled'")
		require.JSONEq(t, `[{"n":25}]`, r.body)
		p.schedule("open", method) // Close ends it
		h.Reset()
		p.do("GET", "/jobs/v2/open"+version, "").refusedOldForm(t, 404002)
		p.schedule("open", method)
	})
}

func TestJobsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHub(t, &testbroker.Options{Keep: 10})
		p := backEnd(t, h, hubdata.AllRights)
		for i := range 20 {
			p.schedule(fmt.Sprint("job-", i),
				`{"type":"scheduleUpdateTwin","queryCondition":"*","updateTwin":{"tags":{"a":1}}}`)
			synctest.Wait()
		}
		var want []string
		for i := 15; i < 20; i++ { // each has a state of its own, and one of its device
			want = append(want, fmt.Sprint("job-", i))
		}
		require.Equal(t, want, p.do("GET", "/jobs/v2/query"+version, "").list(t, "JobResponse"))

		later := fmt.Sprintf(`{"type":"scheduleUpdateTwin","queryCondition":"*","updateTwin":{"tags":{"a":1}},
			"startTime":%q}`,
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		for i := range 100 {
			p.schedule(fmt.Sprint("later-", i), later)
		}
		p.do("PUT", "/jobs/v2/one-more"+version, later).refusedOldForm(t, 429004)
		p.do("PUT", "/jobs/v2/later-1"+version, later).refusedOldForm(t, 409104)
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
		p.do("PUT", "/jobs/v2/j"+version, body).refusedOldForm(t, 400004)
	}
	p.do("PUT", "/jobs/v2/a%20b"+version, `{`+update+`,"queryCondition":"*"}`).refusedOldForm(t, 400004)
	p.do("GET", "/jobs/v2/j"+version, "").refusedOldForm(t, 404002)
	p.post("/jobs/v2/j/cancel"+version, "").refusedOldForm(t, 404002)
}
