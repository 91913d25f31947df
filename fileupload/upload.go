package fileupload

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// upload is one upload in progress.
type upload struct {
	uploader     *Uploader
	policy       retrypolicy.Policy
	name         string
	id           uint64 // of its block IDs
	source       source
	callbackLock ctxLock     // held to call a callback
	reported     int64       // bytes reported to OnProgress; by the holder of callbackLock only
	accepted     atomic.Bool // storage has taken a file or block, perhaps an empty one
	stored       atomic.Int64
	retries      atomic.Int64

	grantLock  ctxLock // guards the next four, also while a new grant is requested
	grant      *grant  // nil before the hub granted the upload
	renewals   int
	notifyTime time.Duration // remaining part of NotifyTimeout for the notification
	lastNotice bool          // the last notification runs: no request may outlast the context, which has a deadline
}

func newUpload(u *Uploader, name string, r io.Reader, size int64) *upload {
	var id [8]byte
	rand.Read(id[:]) // never fails
	return &upload{
		uploader: u, policy: reconnect.RequestPolicy(u.opt.RetryPolicy), name: name, id: binary.BigEndian.Uint64(id[:]),
		source: source{r: r, size: max(size, -1), sum: md5.New()}, callbackLock: newCtxLock(), grantLock: newCtxLock(),
		notifyTime: u.opt.NotifyTimeout,
	}
}

// run runs the upload: beginning, data, notification.
func (p *upload) run(ctx context.Context) (Result, error) {
	began := time.Now()
	result := Result{}
	err := p.do(ctx, "beginning", func(ctx context.Context) (err error) {
		p.grant, err = p.requestGrant(ctx)
		return err
	})
	if err != nil && p.grant != nil { // a callback failed after the hub granted the upload
		err = p.finish(ctx, err)
	} else if err == nil {
		returned := false
		defer func() {
			if !returned { // the source's Read panicked or called runtime.Goexit
				_ = p.finish(ctx, p.source.failed(errNoReturn))
			}
		}()
		result.Blocks, err = p.send(ctx)
		returned = true
		result.Stored = err == nil
		err = p.finish(ctx, err)
		result.URL, result.Blob = p.grant.address(p.uploader.scheme), p.grant.blob
		p.source.sum.Sum(result.MD5[:0])
	}
	result.Size, result.Retries, result.Renewals, result.Duration = p.stored.Load(), int(p.retries.Load()), p.renewals,
		time.Since(began)
	return result, err
}

var errNoReturn = errors.New("Read did not return")

// send sends the source to storage and returns the number of blocks. No request is in flight when
// it returns.
func (p *upload) send(ctx context.Context) (blocks int, err error) {
	if ctx.Err() != nil { // ended during the beginning
		return 0, cancelled(ctx, "beginning", nil)
	}
	size := p.uploader.plan.size(0)
	if p.source.size >= 0 {
		size = min(size, p.source.size)
	}
	first := make([]byte, size)
	n, last, err := p.source.fill(ctx, first)
	switch {
	case err != nil:
		return 0, err
	case last:
		if err := p.store(ctx, "file", func(ctx context.Context, maybeStored *bool) error {
			return p.putBlob(ctx, first[:n], maybeStored)
		}); err != nil {
			return 0, err
		}
		return 0, p.addStored(ctx, n)
	}
	if blocks, err = p.sendBlocks(ctx, first); err != nil {
		return blocks, err
	}
	sum := base64.StdEncoding.EncodeToString(p.source.sum.Sum(nil))
	return blocks, p.store(ctx, "commit", func(ctx context.Context, maybeStored *bool) error {
		return p.commit(ctx, blocks, sum, maybeStored)
	})
}

// store runs the step that makes the file. An attempt sets maybeStored if it may have made the file
// although it fails. Then the outcome of a step that fails is unknown, also if a later attempt was
// refused.
func (p *upload) store(ctx context.Context, step string, op func(_ context.Context, maybeStored *bool) error) error {
	var maybeStored bool
	err := p.do(ctx, step, func(ctx context.Context) error { return op(ctx, &maybeStored) })
	if err != nil && maybeStored {
		return operr.OutcomeUnknown(transport.Find(err))
	}
	return err
}

// A block is part of a file, in a buffer that is reused after the block was sent.
type block struct {
	number int
	body   []byte
}

// sendBlocks stages all blocks; first holds the first one, which was read already. It reads while
// goroutines send one block at a time each, and joins them.
func (p *upload) sendBlocks(ctx context.Context, first []byte) (n int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	free := make(chan []byte, p.uploader.opt.Parallel)
	work := make(chan block)
	var workers sync.WaitGroup
	var failed firstError
	for i := range cap(free) {
		if i > 0 {
			free <- nil // allocated when it is needed
		}
		workers.Go(func() {
			for b := range work {
				step, id := "block "+strconv.Itoa(b.number+1), blockID(p.id, b.number)
				err := p.do(ctx, step, func(ctx context.Context) error { return p.putBlock(ctx, id, b.body) })
				if err == nil {
					err = p.addStored(ctx, len(b.body))
				}
				if err != nil {
					failed.set(err)
					cancel(err)
					continue // the reader may be handing over another one
				}
				free <- b.body[:cap(b.body)]
			}
		})
	}
	complete := false
	defer func() { // also if the source's Read panics
		if err != nil {
			failed.set(err) // before cancel makes the others fail
		}
		if !complete {
			cancel(err)
		}
		close(work)
		workers.Wait()
		if first := failed.get(); first != nil {
			err = first
		}
		cancel(nil)
	}()

	handOver := func(b block) error {
		select {
		case work <- b:
			return nil
		case <-ctx.Done():
			return cancelled(ctx, "block "+strconv.Itoa(b.number+1), nil)
		}
	}
	if err := handOver(block{0, first}); err != nil {
		return 0, err
	}
	for n = 1; ; n++ {
		var buf []byte
		select {
		case buf = <-free:
		case <-ctx.Done():
			return n, cancelled(ctx, "block "+strconv.Itoa(n+1), nil)
		}
		size := p.uploader.plan.size(n)
		if p.source.size >= 0 {
			size = min(size, p.source.size-p.source.read)
		}
		if int64(cap(buf)) < size {
			buf = make([]byte, size)
		}
		got, last, err := p.source.fill(ctx, buf[:size])
		if err != nil {
			return n, err
		}
		if got == 0 {
			complete = true
			return n, nil
		}
		if n == p.uploader.plan.blocks {
			return n, p.uploader.plan.tooLarge("the file has")
		}
		if err := handOver(block{n, buf[:got]}); err != nil {
			return n, err
		}
		if last {
			complete = true
			return n + 1, nil
		}
	}
}

// firstError keeps the first of several errors.
type firstError struct {
	mu  sync.Mutex
	err error
}

func (f *firstError) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *firstError) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// do runs a step with retries under the policy.
func (p *upload) do(ctx context.Context, step string, op func(context.Context) error) error {
	const policy = "Options.RetryPolicy, Options.Rand or Credentials.Now"
	calling, counted := policy, 0
	r := retrypolicy.Retrier{Policy: p.policy, Timeout: -1, Rand: p.uploader.opt.Rand,
		OnRetry: func(n int, delay time.Duration, err error) {
			if n <= counted {
				return // called again for a try that a gate delays
			}
			counted = n
			p.retries.Add(1)
			if onRetry := p.uploader.opt.OnRetry; onRetry != nil && p.callbackLock.lock(ctx) == nil {
				defer p.callbackLock.unlock()
				calling = "Options.OnRetry"
				onRetry(Retry{p.name, step, n, delay, err})
				calling = policy
			}
		}}
	var err error
	var damage errfilter.Damage
	try := func(ctx context.Context) error { return damage.Judge(op(ctx)) }
	if failed := callback.Run(policy, func() { err = r.Do(ctx, try) }); failed != nil {
		return callbackFailed(step, calling, failed)
	}
	if err != nil {
		return p.finalError(ctx, step, err)
	}
	return nil
}

// callbackFailed returns the error for a callback that panicked or ended its goroutine. It ends the
// upload.
func callbackFailed(step, name string, failed error) *transport.Error {
	if e, ok := failed.(*callback.Error); ok {
		failed = &callback.Error{Name: name, Panic: e.Panic}
	}
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpSend, Proto: proto, Err: &stepError{step, failed}}
}

// addStored records that storage has n more bytes. The error is about OnProgress.
func (p *upload) addStored(ctx context.Context, n int) error {
	p.stored.Add(int64(n))
	const name = "Options.OnProgress"
	onProgress := p.uploader.opt.OnProgress
	if onProgress == nil || p.callbackLock.lock(ctx) != nil {
		return nil
	}
	defer p.callbackLock.unlock()
	p.reported += int64(n)
	sent := p.reported // stored may include a block of another goroutine that has not reported yet
	if failed := callback.Run(name, func() { onProgress(Progress{p.name, sent, p.source.size}) }); failed != nil {
		return callbackFailed("progress", name, failed)
	}
	return nil
}

// finalError returns the error for a step that failed for good with err, which comes from
// retrypolicy.
func (p *upload) finalError(ctx context.Context, step string, err error) *transport.Error {
	return atStep(step, reconnect.RequestEnded(ctx, err, errClosed))
}

// cancelled returns the error for a step that ctx, or Close, ended. failure is the last failure of
// the step; it may be nil.
func cancelled(ctx context.Context, step string, failure error) *transport.Error {
	return atStep(step, reconnect.RequestCancelled(ctx, failure, errClosed))
}

// atStep names the step in a new error.
func atStep(step string, e *transport.Error) *transport.Error {
	e.Proto, e.Err = proto, &stepError{step, e.Err}
	return e
}

// finish notifies the hub of the outcome; err is the reason why the file is not stored. It returns
// the error that Upload returns.
func (p *upload) finish(ctx context.Context, err error) error {
	if err == nil {
		if err := p.notify(ctx, notice{IsSuccess: true, StatusCode: 201, StatusDescription: "Created"}); err != nil {
			e := *transport.Find(err)
			text := "the file is stored, but the hub was not notified"
			if errors.Is(err, transport.ErrOutcomeUnknown) {
				text = "the file is stored, but the hub did not acknowledge the notification"
			}
			e.Err = &stepError{text, e.Err}
			return &e
		}
		return nil
	}
	n := notice{StatusCode: 500, StatusDescription: "upload failed: " + transport.KindOf(err).String()}
	if refusal := refusalIn(err); refusal != nil {
		n.StatusCode = refusal.Status
	} else if ctx.Err() != nil {
		n.StatusCode, n.StatusDescription = 499, "upload cancelled by the device"
	}
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.notifyTime)
	defer cancel()
	if second := p.sendNotice(short, n, new(bool)); second != nil {
		e := *transport.Find(err)
		e.Err = &twoErrors{e.Err,
			"; the hub could not be notified either, so the upload counts as running until its URI expires: ",
			notNotified(second)}
		return &e
	}
	return err
}

// notify notifies the hub of a success, for a limited time also after the end of ctx.
func (p *upload) notify(ctx context.Context, n notice) error {
	var maybeReceived bool
	err := p.sendNotice(ctx, n, &maybeReceived)
	if err != nil && cutShort(err) {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.notifyTime)
		defer cancel()
		p.lastNotice = true // no other goroutine reads it any more
		second := p.sendNotice(short, n, &maybeReceived)
		if second == nil {
			return nil
		}
		e := *transport.Find(err)
		e.Err = &twoErrors{e.Err, "; nor after that: ", notNotified(second)}
		err = &e
	}
	if err != nil && maybeReceived {
		return operr.OutcomeUnknown(transport.Find(err))
	}
	return err
}

// cutShort reports whether a step failed because the context ended, or would have ended before
// another attempt, rather than by the policy or an answer.
func cutShort(err error) bool {
	kind := transport.KindOf(err)
	return kind == transport.Cancelled || kind == transport.Closed
}

// notNotified returns the error of a notification that only NotifyTimeout bounded: the end of its
// context is a time-out.
func notNotified(err error) error {
	e := *transport.Find(err)
	if e.Kind == transport.Cancelled {
		e.Kind = transport.Timeout
	}
	return &e
}

// sendNotice sends a notice under the policy. maybeReceived reports whether the hub may have
// received it already: then an answer that the correlation is unknown counts as success. An attempt
// that got no connection does not set it. If the hub
// has given up the upload of a stored file, sendNotice requests another grant and reports its
// success in the same attempt. Otherwise that grant would count as a running upload, and the policy
// may allow no further attempt.
func (p *upload) sendNotice(ctx context.Context, n notice, maybeReceived *bool) error {
	return p.do(ctx, "notification", func(ctx context.Context) error {
		for {
			g, err := p.latest(ctx)
			if err != nil {
				return err
			}
			n.CorrelationID = g.correlation
			var sent atomic.Bool
			traced := httptrace.WithClientTrace(ctx,
				&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
			_, err = p.uploader.post(traced, "/files/notifications", n, http.StatusNoContent)
			refusal := refusalIn(err)
			switch {
			case err == nil:
				return nil
			case refusal == nil || errfilter.Retryable(err): // such as a time-out at the hub
				*maybeReceived = *maybeReceived || sent.Load()
				return err
			case refusal.Code == correlationInvalid && *maybeReceived:
				return nil
			case refusal.Code == correlationExpired && !n.IsSuccess:
				return nil // the hub has given it up by itself
			case refusal.Code != correlationExpired:
				return err
			}
			*maybeReceived = false // the hub has no notice of g, nor of a new grant
			if err := p.replaceRefused(ctx, g, err); err != nil {
				return err
			}
		}
	})
}

// latest returns the current grant, whatever its age.
func (p *upload) latest(ctx context.Context) (*grant, error) {
	if err := p.grantLock.lock(ctx); err != nil {
		return nil, err
	}
	defer p.grantLock.unlock()
	return p.grant, nil
}
