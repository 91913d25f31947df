package backend

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// runJob is the goroutine of a job.
func (h *State) runJob(ctx context.Context, j *job) {
	defer h.Wg.Done()
	defer close(j.done)
	defer j.cancel(nil)
	defer h.Hub.Changed.Wake()
	defer h.jobs.forget()
	if err := pause(ctx, j.Start.Sub(h.Now())); err != nil {
		h.endJob(j, err)
		return
	}
	devices := h.startJob(j)
	ctx, stop := context.WithTimeoutCause(ctx, j.Limit, errJobTime)
	defer stop()
	var workers sync.WaitGroup
	var next atomic.Int64
	for range min(jobWorkers, len(devices)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(devices)); i = next.Add(1) - 1 {
				h.serveDevice(ctx, j, devices[i])
			}
		})
	}
	workers.Wait()
	h.endJob(j, context.Cause(ctx))
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
	targets, now := j.Targets(), h.Now()
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
func (h *State) endJob(j *job, cause error) {
	switch {
	case cause == nil:
		h.jobs.end(j, JobCompleted, "", h.Now())
	case errors.Is(cause, errJobTime):
		h.jobs.end(j, JobFailed, cause.Error(), h.Now())
	default:
		h.jobs.end(j, JobCancelled, cause.Error(), h.Now())
	}
}

// serveDevice does what a job does for one device.
func (h *State) serveDevice(ctx context.Context, j *job, d *DeviceJob) {
	if ctx.Err() == nil {
		h.jobs.note(func() { d.Status, d.Started = DeviceJobRunning, h.Now() })
	}
	result := *d // only this goroutine changes it
	result.Status, result.Err = DeviceJobCompleted, context.Cause(ctx)
	switch {
	case result.Err != nil:
	case j.Update != nil:
		_, result.Err = h.Update(d.ID, *j.Update)
	default:
		answer, err := h.InvokeMethod(ctx, d.ID, *j.Method)
		if result.Err = err; err == nil {
			result.Result = &answer
		}
	}
	switch {
	case errors.Is(result.Err, errJobTime):
		result.Status, result.Err = DeviceJobFailed, h.ServiceError(codeJobTimeout, "%v", errJobTime)
	case errors.Is(result.Err, errJobCancelled), errors.Is(result.Err, hub.ErrClosed):
		result.Status, result.Err = DeviceJobCanceled, h.ServiceError(codeJobTerminated, "%v", result.Err)
	case result.Err != nil:
		result.Status = DeviceJobFailed
	}
	result.Ended = h.Now()
	h.jobs.note(func() { *d = result })
}

// note changes the state of a job for one device.
func (s *jobs) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}
