package backend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// maxTransfers is how many imports and exports the hub remembers.
const maxTransfers = 100

// TransferEnqueued is the status of a transfer before it runs. The later ones are those of jobs.
const TransferEnqueued = "enqueued"

// codeTransferRuns is the error of a second import or export at a time. See errorNames.
const codeTransferRuns = 403003

// A TransferRequest is an import of the registry from a file, or an export to one.
type TransferRequest struct {
	Kind                  string // its type in the API
	Input, Output         string // URIs of containers, without signatures
	InputBlob, OutputBlob string
	ExcludeKeys           bool
	Authentication        string // how the hub accesses the containers
	// Run does it. It returns soon after the context has ended, and reports the done parts of all.
	Run func(ctx context.Context, progress func(done, all int)) error
}

// A Transfer is the state of an import or export.
type Transfer struct {
	TransferRequest
	ID             string
	Started, Ended time.Time
	Status, Reason string
	Progress       int // in percent
}

// transfers holds the imports and exports of the hub.
type transfers struct {
	mu  sync.Mutex  // guards the list and its entries; taken last, and held only shortly
	all []*transfer // the oldest first
}

// A transfer is the hub's record of an import or export. Guarded by transfers.mu.
type transfer struct {
	Transfer
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when its goroutine has ended
}

// StartTransfer begins an import or export. One runs at a time.
func (h *State) StartTransfer(r TransferRequest) (Transfer, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	t := &transfer{cancel: cancel, done: make(chan struct{})}
	t.TransferRequest, t.ID, t.Started, t.Status = r, newTransferID(), h.hub.Now(), TransferEnqueued
	s := &h.transfers
	if !s.add(t) {
		cancel(nil)
		return Transfer{}, h.hub.ServiceError(codeTransferRuns, "another import or export runs; wait until it has ended")
	}
	state := t.Transfer
	if !h.hub.Enter() { // Close cancels the transfers that it finds
		cancel(hub.ErrClosed)
		s.end(t, hub.ErrClosed, h.hub.Now())
		close(t.done)
		return Transfer{}, hub.ErrClosed
	}
	go h.runTransfer(ctx, t)
	return state, nil
}

// newTransferID returns an id in the form of the service.
func newTransferID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// add adds a transfer; false if another one runs.
func (s *transfers) add(t *transfer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.all); n > 0 && s.all[n-1].Ended.IsZero() {
		return false
	}
	s.all = append(s.all, t)
	if len(s.all) > maxTransfers {
		s.all = slices.Delete(s.all, 0, 1)
	}
	return true
}

// runTransfer is the goroutine of an import or export.
func (h *State) runTransfer(ctx context.Context, t *transfer) {
	defer h.hub.Wg.Done()
	defer close(t.done)
	defer t.cancel(nil)
	defer h.hub.Changed.Wake()
	s := &h.transfers
	s.note(func() { t.Status = JobRunning })
	err := t.Run(ctx, func(done, all int) { s.note(func() { t.Progress = done * 100 / max(all, 1) }) })
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	h.hub.Records.Saved()
	s.end(t, err, h.hub.Now())
}

func (s *transfers) end(t *transfer, err error, now time.Time) {
	s.note(func() {
		t.Run = nil // it holds what it has read and written
		switch t.Ended = now; {
		case err == nil:
			t.Status, t.Progress = JobCompleted, 100
		case errors.Is(err, errJobCancelled), errors.Is(err, hub.ErrClosed):
			t.Status, t.Reason = JobCancelled, err.Error()
		default:
			t.Status, t.Reason = JobFailed, err.Error()
		}
	})
}

// note changes the state of a transfer.
func (s *transfers) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Transfers returns the states of the newest imports and exports, the oldest first.
func (h *State) Transfers() []Transfer {
	s := &h.transfers
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Transfer, len(s.all))
	for i, t := range s.all {
		all[i] = t.Transfer
	}
	return all
}

// Transfer returns the state of an import or export.
func (s *State) Transfer(id string) (Transfer, error) {
	all := s.Transfers()
	i := slices.IndexFunc(all, func(t Transfer) bool { return t.ID == id })
	if i < 0 {
		return Transfer{}, s.hub.ServiceError(codeJobNotFound, "job %.128s does not exist", id)
	}
	return all[i], nil
}

// CancelTransfer cancels an import or export, and waits until it has ended. Identities that it has
// changed before stay so. An ended one stays as it is.
func (s *State) CancelTransfer(id string) error {
	if _, err := s.Transfer(id); err != nil {
		return err
	}
	for _, t := range s.transfers.stop(errJobCancelled, id) {
		<-t.done
	}
	return nil
}

// stop cancels the transfers with an id, or all if it is empty, and returns them.
func (s *transfers) stop(cause error, id string) (stopped []*transfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.all {
		if id == "" || t.ID == id {
			t.cancel(cause)
			stopped = append(stopped, t)
		}
	}
	return stopped
}

// clear ends all transfers, waits for them, and forgets them. One that begins meanwhile stays.
func (s *transfers) clear() {
	ended := s.stop(errJobCancelled, "")
	for _, t := range ended {
		<-t.done
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(t *transfer) bool { return slices.Contains(ended, t) })
}
