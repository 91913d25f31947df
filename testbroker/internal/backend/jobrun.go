package backend

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

func (s *State) runJob(ctx context.Context, j *job) {
	defer s.hub.Wg.Done()
	defer close(j.done)
	defer j.cancel(nil)
	defer s.hub.Changed.Wake()
	defer s.jobs.forget()
	if err := pause(ctx, j.Start.Sub(s.hub.Now())); err != nil {
		s.endJob(j, err)
		return
	}
	devices := s.startJob(j)
	ctx, stop := context.WithTimeoutCause(ctx, j.Limit, errJobTime)
	defer stop()
	var workers sync.WaitGroup
	var next atomic.Int64
	for range min(jobWorkers, len(devices)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(devices)); i = next.Add(1) - 1 {
				s.serveDevice(ctx, j, devices[i])
			}
		})
	}
	workers.Wait()
	s.endJob(j, context.Cause(ctx))
}

// pause waits, and returns the cause if the context ends first.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// startJob finds the devices of a job.
func (h *State) startJob(j *job) []*DeviceJob {
	targets, now := j.Targets(), h.hub.Now()
	s := &h.jobs
	s.mu.Lock()
	defer s.mu.Unlock()
	j.Started = now
	if j.Ended.IsZero() { // otherwise it was cancelled
		j.Status = JobRunning
	}
	request := &Job{JobRequest: j.JobRequest, Number: j.Number}
	j.devices = make([]*DeviceJob, len(targets))
	for i, id := range targets {
		j.devices[i] = &DeviceJob{Job: request, ID: id, Status: DeviceJobPending, Created: now}
	}
	return j.devices
}

// endJob records the end of a job. cause says why it ended before all devices had been served.
func (s *State) endJob(j *job, cause error) {
	switch {
	case cause == nil:
		s.jobs.end(j, JobCompleted, "", s.hub.Now())
	case errors.Is(cause, errJobTime):
		s.jobs.end(j, JobFailed, cause.Error(), s.hub.Now())
	default:
		s.jobs.end(j, JobCancelled, cause.Error(), s.hub.Now())
	}
}

// serveDevice does what a job does for one device.
func (s *State) serveDevice(ctx context.Context, j *job, d *DeviceJob) {
	if ctx.Err() == nil {
		s.jobs.note(func() { d.Status, d.Started = DeviceJobRunning, s.hub.Now() })
	}
	result := *d // only this goroutine changes it
	result.Status, result.Err = DeviceJobCompleted, context.Cause(ctx)
	switch {
	case result.Err != nil:
	case j.Update != nil:
		_, result.Err = s.hub.Update(d.ID, *j.Update)
	default:
		answer, err := s.hub.InvokeMethod(ctx, d.ID, *j.Method)
		if result.Err = err; err == nil {
			result.Result = &answer
		}
	}
	switch {
	case errors.Is(result.Err, errJobTime):
		result.Status, result.Err = DeviceJobFailed, s.hub.ServiceError(codeJobTimeout, "%v", errJobTime)
	case errors.Is(result.Err, errJobCancelled), errors.Is(result.Err, hub.ErrClosed):
		result.Status, result.Err = DeviceJobCanceled, s.hub.ServiceError(codeJobTerminated, "%v", result.Err)
	case result.Err != nil:
		result.Status = DeviceJobFailed
	}
	result.Ended = s.hub.Now()
	s.jobs.note(func() { *d = result })
}

// note changes the state of a job for one device.
func (s *jobs) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}
