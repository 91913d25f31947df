package dpscert

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/transport"
)

// lock takes the right to change the certificates. The error is that of ctx, if it has to wait: a
// certificate that was issued just when a connection ended is not lost.
func (r *Renewer) lock(ctx context.Context) error {
	select {
	case r.work <- struct{}{}:
		return nil
	default:
	}
	select {
	case r.work <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *Renewer) unlock() { <-r.work }

// prepare loads the stored certificates, once, and takes an offered chain. It fails if the Store
// cannot be read or a key cannot be opened for the moment, or if ctx ends; the next call does what
// is left.
func (r *Renewer) prepare(ctx context.Context) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	if !r.loaded {
		if err := r.load(ctx); err != nil {
			return err
		}
		r.loaded = true
	}
	r.mu.Lock()
	chain := r.offered
	r.mu.Unlock()
	if chain == nil {
		return nil
	}
	present, names := r.held(), []string{""}
	if present != nil && present.key != "" {
		names = []string{present.key, ""}
	}
	for _, name := range names {
		h, err := r.open(ctx, Issued{Chain: chain, Key: name})
		if err != nil {
			return notYet(ctx, err)
		}
		if h.validAt(r.now()) && (present == nil || h.cert.Leaf.NotBefore.After(present.cert.Leaf.NotBefore)) {
			r.replace(h)
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.offered) > 0 && &r.offered[0] == &chain[0] { // no other one was offered meanwhile
		r.offered = nil
	}
	return nil
}

// maxUnread is how long a Registrar waits for a Store that cannot be read.
const maxUnread = 10 * time.Minute

// load takes the certificates of the Store that belong to their keys. Its caller holds work, as do
// those of open, replace and save.
func (r *Renewer) load(ctx context.Context) error {
	if r.opt.Store == nil {
		return nil
	}
	var stored *Record
	err := callback.Call("Store.Load", func() (err error) {
		stored, err = r.opt.Store.Load()
		return err
	})
	if err != nil {
		r.publish(Event{Step: StepStoreFailed, Err: err})
		if r.unread.IsZero() {
			r.unread = time.Now()
		}
		// The certificates may still be there, and a Registrar brings newer ones.
		if !errors.Is(err, errDamaged) && (time.Since(r.unread) < maxUnread || r.opt.Registrar == nil) {
			return dialError(&transport.Error{Kind: transport.Unavailable, Op: transport.OpIssue, Err: err})
		}
	}
	if err != nil || stored == nil {
		return nil
	}
	var found []*held
	for _, i := range stored.Certificates {
		h, err := r.open(ctx, i)
		switch {
		case err != nil && (len(found) == 0 || ctx.Err() != nil):
			return notYet(ctx, err)
		case err != nil: // a newer certificate is there
			r.publish(Event{Step: StepKeyFailed, Err: err})
		case h != nil && len(found) < 2:
			found = append(found, h)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(found) > 0 {
		r.current = found[0]
	}
	if len(found) > 1 {
		r.previous = found[1]
	}
	return nil
}

// notYet returns the error of a Dial for err, an error of open.
func notYet(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return dialError(failureOf(ctx, err))
}

// open returns the certificate with its key, nil if they do not belong together or there is no such
// key. It fails if the key cannot be opened for the moment, or if ctx ends.
func (r *Renewer) open(ctx context.Context, i Issued) (*held, error) {
	key := r.key
	if i.Key != "" {
		if r.opt.OpenKey == nil {
			return nil, nil
		}
		err := callback.Call("Options.OpenKey", func() (err error) {
			key, err = r.opt.OpenKey(ctx, i.Key)
			return err
		})
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil && errfilter.Of(err).Retry:
			return nil, err
		case err != nil:
			r.publish(Event{Step: StepKeyFailed, Err: err})
			return nil, nil
		case key == nil:
			return nil, nil
		}
	}
	cert, err := Certificate(i.Chain, key)(ctx)
	if err != nil {
		return nil, nil // it belongs to another key
	}
	return hold(cert, i.Key), nil
}

// hold decides when to renew a certificate: at two thirds of its life, minus up to 5 % of it. The
// certificate is the source of that part, so that a restart changes nothing.
func hold(cert *tls.Certificate, key string) *held {
	life := cert.Leaf.NotAfter.Sub(cert.Leaf.NotBefore)
	digest := sha256.Sum256(cert.Leaf.Raw)
	early := time.Duration(binary.BigEndian.Uint64(digest[:]) % uint64(max(life/20, 1)))
	return &held{cert, key, cert.Leaf.NotBefore.Add(life/3*2 - early)}
}

// adopt makes h the certificate in use. Other requests are over: a late answer to one would bring
// an older certificate.
func (r *Renewer) adopt(ctx context.Context, h *held) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	r.pending, r.service = nil, nil
	r.replace(h)
	return nil
}

func (r *Renewer) replace(h *held) {
	r.mu.Lock()
	r.previous, r.current = r.current, h
	r.mu.Unlock()
	r.save()
}

// goBack makes the previous certificate the one in use, if it has not ended, and forgets the newest
// one, which the hub refuses. It reports whether it did.
func (r *Renewer) goBack(ctx context.Context) bool {
	if r.lock(ctx) != nil {
		return false
	}
	defer r.unlock()
	now := r.now()
	r.mu.Lock()
	can := r.previous.validAt(now)
	if can {
		r.current, r.previous = r.previous, nil
	}
	r.mu.Unlock()
	if can {
		r.save()
	}
	return can
}

// save stores the certificates.
func (r *Renewer) save() {
	if r.opt.Store == nil {
		return
	}
	r.mu.Lock()
	record := &Record{}
	for _, h := range []*held{r.current, r.previous} {
		if h != nil {
			record.Certificates = append(record.Certificates, Issued{Chain: h.cert.Certificate, Key: h.key})
		}
	}
	r.mu.Unlock()
	err := callback.Call("Store.Save", func() error { return r.opt.Store.Save(record) })
	if r.unsaved = err != nil; err != nil {
		r.publish(Event{Step: StepStoreFailed, Err: err})
	}
}

// saveAgain stores the certificates if that failed before.
func (r *Renewer) saveAgain(ctx context.Context) {
	if r.lock(ctx) != nil {
		return
	}
	defer r.unlock()
	if r.unsaved {
		r.save()
	}
}

// nextKey returns the key of the next certificate.
func (r *Renewer) nextKey(ctx context.Context) (key crypto.Signer, name string, err error) {
	if r.opt.NewKey == nil {
		return r.key, "", nil
	}
	err = callback.Call("Options.NewKey", func() (err error) {
		key, name, err = r.opt.NewKey(ctx)
		return err
	})
	switch {
	case err != nil:
	case key == nil:
		err = invalid("NewKey returned no key")
	case name == "":
		err = invalid("NewKey returned no name for the key; it is needed after a restart")
	}
	return key, name, err
}
