package agent

import (
	"bytes"
	"context"
	"maps"
	"time"

	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/transport"
)

// renew takes over the addresses of another offer of the current workflow: signed URLs expire. They
// are no part of what was verified, and each file is verified by its hash. The error is that of the
// Store.
func (a *Agent) renew(ctx context.Context, o *Offer) error {
	w := a.s.work
	merged := w.offer
	merged.URLs = make(map[string]string)
	maps.Copy(merged.URLs, w.offer.URLs)
	maps.Copy(merged.URLs, o.URLs)
	if maps.Equal(merged.URLs, w.offer.URLs) || !w.sameUpdate(o) || merged.checkSize() != nil {
		return nil
	}
	before := w.offer.URLs
	w.offer.URLs = merged.URLs
	a.setURLs(merged.URLs)
	err := a.save(ctx)
	if transport.KindOf(err) == transport.TooLarge {
		w.offer.URLs = before // in the Store: after a reset they are refused, and asked for again
		return nil
	}
	return err
}

// sameUpdate reports whether an offer is of the update of the workflow. Only a manifest that is
// itself in a file does not tell what the other files are.
func (w *workflow) sameUpdate(o *Offer) bool {
	if w.manifest == nil {
		return bytes.Equal(o.Manifest, w.offer.Manifest) && o.Signature == w.offer.Signature
	}
	var r manifestReader
	same := r.updateID(jsonscan.Value(o.Manifest, "updateId")) == w.manifest.ID
	for _, f := range r.files("files", jsonscan.Value(o.Manifest, "files")) {
		have := fileByID(w.manifest.Files, f.ID)
		same = same && (have == nil || have.SHA256 == f.SHA256)
	}
	return same && r.err == nil
}

// setURLs sets the addresses that readers use.
func (a *Agent) setURLs(urls map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.urls = urls
}

// address returns where the file is.
func (r *reader) address() string {
	r.agent.mu.Lock()
	defer r.agent.mu.Unlock()
	if url := r.agent.urls[r.file.ID]; url != "" && r.offered {
		return url
	}
	return r.file.URL
}

const (
	// maxRenewals is how many addresses in a row may be refused.
	maxRenewals = 3
	// minLife is how long an address must last, and bring bytes, to end such a row: a server that
	// refuses each one after a few bytes would make the device ask the service without a pause.
	minLife = 10 * time.Second
)

// renew waits until the service has offered the file at another address than r.url, which a server
// has refused. Otherwise it returns the refusal.
func (r *reader) renew(ctx context.Context, refusal error) error {
	if r.at > r.had && time.Since(r.askedAt) >= minLife {
		r.asked = 0
	}
	if !r.offered || r.asked == maxRenewals {
		return refusal
	}
	r.asked++
	r.askedAt, r.had = time.Now(), r.at
	if r.address() != r.url {
		return nil
	}
	select {
	case <-r.agent.askForURLs(refusal):
	case <-ctx.Done():
		return ctx.Err()
	}
	r.askedAt = time.Now() // the wait is no part of the address's life
	if r.address() == r.url {
		return refusal
	}
	return nil
}

// hasExpired reports whether a server refuses an address as it does when its signature has expired.
func hasExpired(err error) bool {
	e, ok := errchain.First(err, isStatus).(*transport.StatusError)
	return ok && (e.Status == 403 || e.Status == 410)
}

func isStatus(err error) bool {
	_, ok := err.(*transport.StatusError)
	return ok
}

// askForURLs makes Run ask for the offer again because of err. The result is closed when the
// service has answered.
func (a *Agent) askForURLs(err error) <-chan struct{} {
	a.failing(err)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.renewal == nil {
		a.renewal = make(chan struct{})
	}
	a.asked = true
	a.wake()
	return a.renewal
}

// waitingForURLs returns what a Check that begins has to close when it is answered.
func (a *Agent) waitingForURLs() chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.renewal
}

// letGo ends the waits that began before a Check.
func (a *Agent) letGo(waiting chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if waiting != nil {
		close(waiting)
		a.renewal = nil
	}
}
