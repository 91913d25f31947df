package backend

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// The limits of jobs: those that have not ended, and the devices of one job that are served at a
// time.
const (
	maxActiveJobs = 100
	jobWorkers    = 8
)

// The statuses of a job.
const (
	JobScheduled = "scheduled" // it starts later
	JobQueued    = "queued"
	JobRunning   = "running"
	JobCompleted = "completed" // each device has been served, with or without success
	JobFailed    = "failed"    // its time was over before
	JobCancelled = "cancelled"
)

// The statuses of a job for one device.
const (
	DeviceJobPending   = "pending"
	DeviceJobRunning   = "running"
	DeviceJobCompleted = "completed"
	DeviceJobFailed    = "failed"
	DeviceJobCanceled  = "canceled"
)

// Error codes of jobs. See errorNames.
const (
	codeJobNotFound   = 404002
	codeJobEnded      = 405102
	codeJobTimeout    = 408000
	codeJobExists     = 409104
	codeTooManyJobs   = 429004
	codeJobTerminated = 500002
)

// causes of a job's end before all devices have been served.
var (
	errJobCancelled = errors.New("the job was cancelled")
	errJobTime      = errors.New("the time limit of the job is over")
)

// A JobRequest is what a job does, and when.
type JobRequest struct {
	ID        string
	Kind      string                     // its type in the API
	Condition string                     // as sent
	Method    *hubdata.MethodCall        // either this
	Update    *hub.TwinUpdate            // or this
	Raw       any                        // the method or the update as sent
	Start     time.Time                  // not after now: at once
	Limit     time.Duration              // from the start on
	Targets   func() []identity.Identity // evaluated at the start
}

// A Job is the state of a job.
type Job struct {
	JobRequest
	Number                  uint64 // in the order of creation
	Created, Started, Ended time.Time
	Status, Reason          string
	Devices                 map[string]int // how many have each status
}

// A DeviceJob is the state of a job for one device or module.
type DeviceJob struct {
	Job                     *Job // its request and number only
	ID                      identity.Identity
	Status                  string
	Created, Started, Ended time.Time
	Result                  *hubdata.MethodResult
	Err                     error
}

// jobs holds the jobs of the hub.
type jobs struct {
	keep int

	mu     sync.Mutex // guards the fields below and all jobs; taken last, and held only shortly
	all    []*job     // the oldest first
	number uint64
}

// A job is the hub's record of a job. Guarded by jobs.mu.
type job struct {
	Job
	devices []*DeviceJob
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when its goroutine has ended
}

// ScheduleJob adds a job. It runs in its own goroutine.
func (s *State) ScheduleJob(r JobRequest) (Job, error) {
	if err := s.checkJob(&r); err != nil {
		return Job{}, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	j := &job{cancel: cancel, done: make(chan struct{})}
	j.JobRequest, j.Created, j.Status = r, s.hub.Now(), JobQueued
	if r.Start.After(j.Created) {
		j.Status = JobScheduled
	}
	if err := s.addJob(j); err != nil {
		cancel(err)
		return Job{}, err
	}
	if !s.hub.Enter() { // Close cancels the jobs that it finds
		cancel(hub.ErrClosed)
		close(j.done)
		return Job{}, hub.ErrClosed
	}
	state := s.jobs.view(j)
	go s.runJob(ctx, j)
	return state, nil
}

// checkJob returns why no device can serve a job.
func (s *State) checkJob(r *JobRequest) error {
	if err := identity.CheckID("job", r.ID); err != nil {
		return s.hub.ServiceError(hub.CodeArgumentInvalid, "%v", err)
	}
	if !hub.Writable(r.Start) {
		return s.hub.ServiceError(hub.CodeArgumentInvalid, "startTime in the year %d, 1 to 9999 are allowed",
			r.Start.UTC().Year())
	}
	if r.Update == nil {
		return s.hub.CheckMethod(*r.Method)
	}
	if r.Update.Desired == nil && !r.Update.ChangesTags() {
		return s.hub.ServiceError(hub.CodeArgumentInvalid, "updateTwin changes nothing; give tags or properties.desired")
	}
	if err := document.Check(r.Update.Desired); err != nil {
		return s.hub.ServiceError(hub.CodeArgumentInvalid, "updateTwin.properties.desired: %v", err)
	}
	if err := document.Check(r.Update.Tags); err != nil {
		return s.hub.ServiceError(hub.CodeArgumentInvalid, "updateTwin.tags: %v", err)
	}
	return nil
}

func (h *State) addJob(j *job) error {
	s := &h.jobs
	s.mu.Lock()
	defer s.mu.Unlock()
	active := 0
	for _, other := range s.all {
		if other.ID == j.ID {
			return h.hub.ServiceError(codeJobExists, "job %s exists", j.ID)
		}
		if other.Ended.IsZero() {
			active++
		}
	}
	if active >= maxActiveJobs {
		return h.hub.ServiceError(codeTooManyJobs, "%d jobs have not ended; wait, or cancel one", active)
	}
	s.number++
	j.Number = s.number
	s.all = append(s.all, j)
	return nil
}

// CancelJob cancels a job that has not ended. Devices that are served meanwhile may still be
// changed.
func (s *State) CancelJob(id string) (Job, error) {
	j, err := s.job(id)
	if err != nil {
		return Job{}, err
	}
	if !s.jobs.end(j, JobCancelled, errJobCancelled.Error(), s.hub.Now()) {
		return Job{}, s.hub.ServiceError(codeJobEnded, "job %s has ended", id)
	}
	j.cancel(errJobCancelled)
	return s.jobs.view(j), nil
}

// Job returns the state of a job.
func (s *State) Job(id string) (Job, error) {
	j, err := s.job(id)
	if err != nil {
		return Job{}, err
	}
	return s.jobs.view(j), nil
}

func (h *State) job(id string) (*job, error) {
	s := &h.jobs
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.all, func(j *job) bool { return j.ID == id })
	if i < 0 {
		return nil, h.hub.ServiceError(codeJobNotFound, "job %.128s does not exist", id)
	}
	return s.all[i], nil
}

// Jobs returns the states of all jobs, the oldest first.
func (h *State) Jobs() []Job {
	s := &h.jobs
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Job, len(s.all))
	for i, j := range s.all {
		all[i] = j.viewLocked()
	}
	return all
}

// DeviceJobs returns the states of all jobs for all devices, in the order of the jobs and devices.
func (h *State) DeviceJobs() []DeviceJob {
	s := &h.jobs
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []DeviceJob
	for _, j := range s.all {
		for _, d := range j.devices {
			all = append(all, *d)
		}
	}
	return all
}

func (s *jobs) view(j *job) Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.viewLocked()
}

func (j *job) viewLocked() Job {
	state := j.Job
	state.Devices = make(map[string]int)
	for _, d := range j.devices {
		state.Devices[d.Status]++
	}
	return state
}

// end records the end of a job; false if it has ended before.
func (s *jobs) end(j *job, status, reason string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !j.Ended.IsZero() {
		return false
	}
	j.Status, j.Reason, j.Ended = status, reason, now
	return true
}

// forget drops the oldest ended jobs until the states of the others for all devices are at most
// keep. The newest one stays.
func (s *jobs) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keep == 0 {
		return
	}
	states := 0
	for _, j := range s.all {
		states += 1 + len(j.devices)
	}
	kept := s.all[:0]
	for i, j := range s.all {
		if states > s.keep && !j.Ended.IsZero() && i < len(s.all)-1 {
			states -= 1 + len(j.devices)
			continue
		}
		kept = append(kept, j)
	}
	clear(s.all[len(kept):])
	s.all = kept
}

func (s *jobs) stop(cause error) []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.all {
		j.cancel(cause)
	}
	return slices.Clone(s.all)
}

// clear ends all jobs, waits for them, and forgets them. A job that is added meanwhile stays.
func (s *jobs) clear() {
	ended := s.stop(errJobCancelled)
	for _, j := range ended {
		<-j.done
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(j *job) bool { return slices.Contains(ended, j) })
}
