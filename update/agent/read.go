package agent

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"io"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// ErrHash is the error of a file that is not the one of the manifest. A Handler that finds that out
// by itself returns it, too.
var ErrHash = fault(transport.Protocol, "file: its SHA-256 is not that of the manifest")

var (
	errShort   = fault(transport.Protocol, "file: the server ends it before the size of the manifest")
	errLong    = fault(transport.Protocol, "file: the server sends more than the size of the manifest")
	errSlow    = fault(transport.Timeout, "file: the server sent less than 1 KB in 2 minutes")
	errStored  = fault(transport.Invalid, "file: what is stored of it is longer than the size of the manifest; discard it")
	errForeign = fault(transport.Invalid, "file: it has no URL; take one of Work.Files or related to one")
)

// Open returns the content of a file that is in w.Files or related to one. have is what an earlier
// Download has stored of it, from the beginning on: it is read for the hash, and the result
// continues behind it. nil: nothing.
//
// The reader resumes by itself after failures of the network, until ctx ends or Options.Policy
// gives up: then the error is marked by retrypolicy.Permanent. A server that sends less than 1 KB
// in 2 minutes has failed, too. The reader returns io.EOF only if size and SHA-256 are those of the
// manifest: otherwise it ends with an error of Kind Protocol, and the handler must discard what it
// has read.
func (w *Work) Open(ctx context.Context, f *File, have io.Reader) (io.ReadCloser, error) {
	if f.URL == "" {
		return nil, errForeign
	}
	r := w.agent.open(ctx, f, w.URLs[f.ID])
	if have != nil {
		n, err := io.Copy(r.sum, io.LimitReader(have, f.Size+1))
		if err != nil {
			return nil, err
		}
		if n > f.Size {
			return nil, errStored
		}
		r.at = n
	}
	if have := w.before(f) + r.at; have > w.have {
		w.agent.wentOn(have)
	}
	return r, nil
}

// before returns the size of the files before f, or before the one that f is related to.
func (w *Work) before(f *File) (size int64) {
	for i := range w.Files {
		own := &w.Files[i]
		if own.ID == f.ID || fileByID(own.Related, f.ID) != nil {
			return size
		}
		size += own.Size
	}
	return size
}

// open returns a reader of a whole file. offered is its address in the offer, empty if it has none.
func (a *Agent) open(ctx context.Context, f *File, offered string) *reader {
	return &reader{ctx: ctx, agent: a, file: f, offered: f.URL == offered, sum: sha256.New()}
}

// reader is what Work.Open returns.
type reader struct {
	ctx     context.Context // of Open, for the calls of Read
	agent   *Agent
	file    *File
	offered bool // the address is the service's, and not the handler's
	asked   int  // how many addresses in a row were refused
	askedAt time.Time
	had     int64 // of the file at askedAt
	sum     digest
	at      int64
	url     string        // of the latest transfer; the service may have offered another one since
	body    io.ReadCloser // nil: none
	err     error         // of the latest Read, once it is final

	waited time.Duration // of an attempt, for the server
}

// digest is what a reader uses of a hash.Hash.
type digest interface {
	io.Writer
	Sum(b []byte) []byte
}

// Read implements io.Reader. It waits for times.MinProgress bytes, if p has the room and the file
// so many: a retry that brings fewer is not the end of a series.
func (r *reader) Read(p []byte) (n int, err error) {
	if r.err != nil || len(p) == 0 {
		return 0, r.err
	}
	if r.at == r.file.Size {
		r.err = r.atEnd()
		return 0, r.err
	}
	p = p[:min(int64(len(p)), r.file.Size-r.at)]
	var damage errfilter.Damage
	err = r.agent.retrier().Do(r.ctx, func(ctx context.Context) error { return damage.Judge(r.fill(ctx, p, &n)) })
	r.err = retrypolicy.Permanent(err) // the loops around it must not ask the policy again
	if r.err != nil && r.ctx.Err() != nil {
		r.err = r.ctx.Err()
	}
	return n, r.err
}

// fill reads into p behind the first n bytes, until there are enough.
func (r *reader) fill(ctx context.Context, p []byte, n *int) error {
	r.waited = 0
	for renewed := false; *n < min(len(p), times.MinProgress); {
		switch m, err := r.some(p[*n:]); {
		case m > 0:
			*n += m
		case hasExpired(err):
			if err := r.renew(ctx, err); err != nil {
				return err
			}
		case errchain.Has(err, io.EOF) && !renewed: // perhaps the connection was closed
			renewed = true
		case errchain.Has(err, io.EOF):
			return asNetwork(io.ErrUnexpectedEOF)
		case err != nil:
			return asNetwork(err)
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if *n < min(len(p), times.MinProgress) && r.waited >= times.ProgressTime {
			_ = r.Close()
			return errSlow
		}
	}
	return nil
}

// some reads once. It begins a transfer if there is none.
func (r *reader) some(p []byte) (int, error) {
	fresh := r.body == nil
	if fresh {
		r.url = r.address()
		body, err := r.agent.opt.Fetch.Fetch(r.ctx, r.url, r.at)
		if err != nil {
			return 0, err
		}
		r.body = body
	}
	began := time.Now()
	n, err := r.body.Read(p)
	if !fresh { // the first Read may have to connect
		r.waited += time.Since(began)
	}
	r.at += int64(n)
	_, _ = r.sum.Write(p[:n])
	switch {
	case n > 0 || err == nil:
		return n, nil
	case err == io.EOF && fresh:
		err = errShort // at this offset there is nothing
	}
	_ = r.Close()
	return 0, err
}

// atEnd returns io.EOF if the whole file is right.
func (r *reader) atEnd() error {
	if r.body != nil {
		var more [1]byte
		if n, _ := r.body.Read(more[:]); n > 0 {
			return errLong
		}
	}
	if subtle.ConstantTimeCompare(r.sum.Sum(nil), r.file.SHA256[:]) != 1 {
		return ErrHash
	}
	return io.EOF
}

// Close ends the transfer. It may be called more than once.
func (r *reader) Close() error {
	if r.body == nil {
		return nil
	}
	err := r.body.Close()
	r.body = nil
	return err
}

// asNetwork makes an error of a connection one that is worth a retry, if it says nothing else.
func asNetwork(err error) error {
	if err == nil || transport.Find(err) != nil || errchain.Has(err, context.Canceled) {
		return err
	}
	return &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection, Proto: proto, Err: err}
}
