package servicefront

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/backend"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/query"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

var jobRoutes = serviceRoutes(fault.RouteRegistry, []serviceRow{
	{"GET jobs/v2/query", readers | hubdata.RightServiceConnect, queryJobs},
	{"PUT jobs/v2/{job}", hubdata.RightRegistryWrite | hubdata.RightServiceConnect, withBody(putJob)},
	{"GET jobs/v2/{job}", readers | hubdata.RightServiceConnect, getJob},
	{"POST jobs/v2/{job}/cancel", hubdata.RightRegistryWrite | hubdata.RightServiceConnect, cancelJob},
})

// The time limits of a job, in seconds.
const (
	defaultJobSeconds = 3600
	maxJobSeconds     = 30 * 24 * 3600
)

// The types of jobs.
const (
	methodJob = "scheduleDeviceMethod"
	updateJob = "scheduleUpdateTwin"
)

// A jobRequest is a job as back ends send it.
type jobRequest struct {
	JobID                     string          `json:"jobId"`
	Type                      string          `json:"type"`
	CloudToDeviceMethod       json.RawMessage `json:"cloudToDeviceMethod"`
	UpdateTwin                json.RawMessage `json:"updateTwin"`
	QueryCondition            string          `json:"queryCondition"`
	StartTime                 *string         `json:"startTime"`
	MaxExecutionTimeInSeconds int             `json:"maxExecutionTimeInSeconds"`
}

// A jobDocument is a job as back ends receive it.
type jobDocument struct {
	JobID                     string        `json:"jobId"`
	QueryCondition            string        `json:"queryCondition"`
	CreatedTime               string        `json:"createdTime"`
	StartTime                 string        `json:"startTime"`
	EndTime                   string        `json:"endTime,omitempty"`
	MaxExecutionTimeInSeconds int           `json:"maxExecutionTimeInSeconds"`
	Type                      string        `json:"type"`
	CloudToDeviceMethod       any           `json:"cloudToDeviceMethod,omitempty"`
	UpdateTwin                any           `json:"updateTwin,omitempty"`
	Status                    string        `json:"status"`
	FailureReason             string        `json:"failureReason,omitempty"`
	StatusMessage             string        `json:"statusMessage,omitempty"`
	DeviceJobStatistics       jobStatistics `json:"deviceJobStatistics"`
}

type jobStatistics struct {
	DeviceCount    int `json:"deviceCount"`
	FailedCount    int `json:"failedCount"`
	SucceededCount int `json:"succeededCount"`
	RunningCount   int `json:"runningCount"`
	PendingCount   int `json:"pendingCount"`
}

func (d *jobRequest) read(h *hub.Hub) (r backend.JobRequest, err error) {
	bad := func(format string, args ...any) (backend.JobRequest, error) {
		return backend.JobRequest{}, h.ServiceError(hub.CodeArgumentInvalid, format, args...)
	}
	r = backend.JobRequest{ID: d.JobID, Condition: d.QueryCondition, Limit: defaultJobSeconds * time.Second,
		Start: h.Now()}
	target, err := query.ParseCondition(d.QueryCondition)
	if err != nil {
		return bad("queryCondition: %v", err)
	}
	if target.From() == query.Jobs {
		return bad("queryCondition: jobs are for devices and modules")
	}
	r.Targets = func() []identity.Identity { return targets(h, target) }
	switch s := d.MaxExecutionTimeInSeconds; {
	case s < 0 || s > maxJobSeconds:
		return bad("maxExecutionTimeInSeconds %d, want 1 to %d", s, maxJobSeconds)
	case s > 0:
		r.Limit = time.Duration(s) * time.Second
	}
	if d.StartTime != nil && *d.StartTime != "" {
		if r.Start, err = time.Parse(time.RFC3339Nano, *d.StartTime); err != nil {
			return bad("startTime %.40q, want a time such as 2030-01-31T12:00:00Z", *d.StartTime)
		}
		if r.Start.IsZero() { // of a client that sends the fields it does not set
			r.Start = h.Now()
		}
	}
	switch {
	case strings.EqualFold(d.Type, methodJob):
		r.Kind = methodJob
		r.Method, r.Raw, err = readMethod(d.CloudToDeviceMethod)
	case strings.EqualFold(d.Type, updateJob):
		r.Kind = updateJob
		r.Update, r.Raw, err = readUpdate(d.UpdateTwin)
	default:
		return bad("type %.40q, want %s or %s", d.Type, methodJob, updateJob)
	}
	return r, err
}

func readMethod(raw json.RawMessage) (*hubdata.MethodCall, any, error) {
	var d methodDocument
	if err := web.Decode(raw, &d); err != nil {
		return nil, nil, web.Errorf(hub.CodeArgumentInvalid, "cloudToDeviceMethod: %v", err)
	}
	call, err := d.call()
	return &call, raw, err
}

func readUpdate(raw json.RawMessage) (*hub.TwinUpdate, any, error) {
	var d struct {
		twinDocument
		ETag string `json:"etag"`
	}
	if err := web.Decode(raw, &d); err != nil {
		return nil, nil, web.Errorf(hub.CodeArgumentInvalid, "updateTwin: %v", err)
	}
	return &hub.TwinUpdate{Desired: writable(d.Properties.Desired), Tags: writable(d.Tags),
		Etag: strings.Trim(d.ETag, `"`)}, raw, nil
}

// targets returns the devices or modules that fulfil a condition, by name.
func targets(h *hub.Hub, condition *query.Query) []identity.Identity {
	var all []identity.Identity
	for _, id := range collected(h, condition.From()) {
		if doc := TwinOf(h, id); doc != nil && condition.Accepts(doc) {
			all = append(all, id)
		}
	}
	return all
}

func jobOf(j *backend.Job) jobDocument {
	d := jobDocument{JobID: j.ID, QueryCondition: j.Condition, CreatedTime: document.TimeText(j.Created),
		StartTime: document.TimeText(j.Start), MaxExecutionTimeInSeconds: int(j.Limit / time.Second), Type: j.Kind,
		Status: j.Status, FailureReason: j.Reason,
		DeviceJobStatistics: jobStatistics{FailedCount: j.Devices[backend.DeviceJobFailed],
			SucceededCount: j.Devices[backend.DeviceJobCompleted], RunningCount: j.Devices[backend.DeviceJobRunning],
			PendingCount: j.Devices[backend.DeviceJobPending]},
	}
	for _, n := range j.Devices {
		d.DeviceJobStatistics.DeviceCount += n
	}
	if !j.Ended.IsZero() {
		d.EndTime = document.TimeText(j.Ended)
	}
	if j.Kind == methodJob {
		d.CloudToDeviceMethod = j.Raw
	} else {
		d.UpdateTwin = j.Raw
	}
	return d
}

func putJob(q *web.Request, d *jobRequest) (web.Answer, error) {
	h := q.Hub
	if d.JobID != "" && d.JobID != q.Vars["job"] {
		return web.Answer{}, h.ServiceError(hub.CodeArgumentInvalid, "the body is about job %.128s, the path about %s",
			d.JobID, q.Vars["job"])
	}
	d.JobID = q.Vars["job"]
	r, err := d.read(h)
	if err != nil {
		return web.Answer{}, err
	}
	return jobAnswer(backend.Of(h).ScheduleJob(r))
}

func getJob(q *web.Request) (web.Answer, error) {
	return jobAnswer(backend.Of(q.Hub).Job(q.Vars["job"]))
}

func cancelJob(q *web.Request) (web.Answer, error) {
	return jobAnswer(backend.Of(q.Hub).CancelJob(q.Vars["job"]))
}

func jobAnswer(j backend.Job, err error) (web.Answer, error) {
	return web.AnswerJSON(jobOf(&j), ""), err
}

// queryJobs lists the jobs of a type and a status, by page.
func queryJobs(q *web.Request) (web.Answer, error) {
	kind, status := q.Query.Get("jobType"), q.Query.Get("jobStatus")
	text := "jobs\n" + kind + "\n" + status // stands for the query
	from, size, err := pageAsked(q, text)
	if err != nil {
		return web.Answer{}, err
	}
	all := backend.Of(q.Hub).Jobs()
	keys := make([]string, len(all))
	for i := range all {
		keys[i] = jobKey(all[i].Number)
	}
	page, next := pageOf(keys, from, size, math.MaxInt, func(i int) (jobDocument, bool) {
		j := &all[i]
		return jobOf(j), (kind == "" || strings.EqualFold(kind, j.Kind)) &&
			(status == "" || strings.EqualFold(status, j.Status))
	})
	return pageAnswer(page, next.token(text), "JobResponse"), nil
}
