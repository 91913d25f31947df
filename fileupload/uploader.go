package fileupload

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/transport"
)

// Uploader uploads the files of one device. It is safe for concurrent use. Make it with New.
type Uploader struct {
	creds   *transport.Credentials
	opt     Options
	plan    plan
	agent   string
	scheme  string
	hub     *service
	storage *service
	clock   hubhttp.Clock
	tokens  *hubhttp.Tokens

	closing, closed             context.Context // done when Close begins; done when all uploads have ended
	startClosing, finishClosing context.CancelFunc

	mu          sync.Mutex
	closeCalled bool           // Close was called
	uploads     sync.WaitGroup // grows under mu while closeCalled is false
}

// New returns an Uploader for the device that creds name; nil options mean all defaults. Both are
// copied. It dials nothing. The error is an *transport.Error of Kind Invalid, or of Kind
// Unsupported for the credentials of a module, because hubs do not let modules upload files.
func New(creds *transport.Credentials, o *Options) (*Uploader, error) {
	if creds == nil {
		return nil, invalid("credentials are nil; device.ParseConnectionString returns them")
	}
	if err := creds.Validate(); err != nil {
		return nil, err
	}
	if creds.ModuleID != "" {
		return nil, &transport.Error{Kind: transport.Unsupported, Op: transport.OpOpen, Proto: proto,
			Err: errors.New("modules cannot upload files; use the credentials of the device")}
	}
	opt, err := o.resolve()
	if err != nil {
		return nil, err
	}
	own := *creds
	u := &Uploader{creds: &own, opt: opt, plan: plan{opt.BlockSize, opt.MaxBlockSize, maxBlocks},
		agent: dialer.Agent(opt.Network.ProductInfo), scheme: "https"}
	if opt.Network.Plaintext {
		u.scheme = "http"
	}
	u.closing, u.startClosing = context.WithCancel(context.Background())
	u.closed, u.finishClosing = context.WithCancel(context.Background())
	u.hub, u.storage = u.newHubService(), u.newStorageService()
	u.tokens = hubhttp.NewTokens(&own, &u.clock, opt.RequestTimeout)
	return u, nil
}

// Result is the outcome of an upload.
type Result struct {
	// URL is the location of the file, without the signature that the device wrote it with.
	URL string
	// Blob is its name in the container, as chosen by the hub: the device's id, a slash, and the
	// requested name.
	Blob string
	// Size is the number of bytes that storage has of it.
	Size int64
	// Blocks is the number of blocks; 0: the file was sent in one request.
	Blocks int
	// MD5 is the MD5 of the whole file, which storage keeps with it.
	MD5 [16]byte
	// Stored reports that the file is complete in storage. It may be true although Upload failed: then
	// the notification of the hub failed. It is false if the outcome is unknown.
	Stored bool
	// Retries is the number of requests that were sent again.
	Retries int
	// Renewals is the number of additional upload URIs that were requested, because the one in use
	// expired or was refused.
	Renewals int
	// Duration is the duration of the whole upload.
	Duration time.Duration
}

// Progress is the progress of an upload.
type Progress struct {
	// Name is the name given to Upload.
	Name string
	// Sent is the number of bytes that storage has taken.
	Sent int64
	// Size is the size given to Upload; negative if unknown.
	Size int64
}

// Retry describes a retry of a request.
type Retry struct {
	// Name is the name given to Upload.
	Name string
	// Step is the request: "beginning", "file", "block 7", "commit" or "notification".
	Step string
	// Number is 1 for the first retry of this request.
	Number int
	// Delay is the delay before the retry.
	Delay time.Duration
	// Err is the failure that causes the retry.
	Err error
}

var errClosed = &transport.Error{Kind: transport.Closed, Op: transport.OpSend, Proto: proto,
	Err: errors.New("Close was called")}

// Upload stores the data of r under name and notifies the hub. It reads size bytes of r and not
// more, or all up to io.EOF if size is negative, on the caller's goroutine, once, from beginning to
// end. It returns when storage has the file and the hub is notified, when it failed for good, or
// when ctx ended; in the last two cases the hub was notified, or NotifyTimeout has passed. A Read
// that blocks also blocks Upload: ctx cannot interrupt it. After a Read that panics the hub is
// notified, too. A file of the same name is replaced atomically at the end and stays intact until
// then.
//
// name is the part of the blob's name after the device's id: segments separated by slashes, at most
// 1024 characters including the id.
//
// The error is an *transport.Error:
//   - Cancelled, with ctx's error and its cause in the chain, when ctx ended or would have ended
//     before another attempt; Closed when Close ended the upload;
//   - RetryExpired when the policy ended the retries; the *retrypolicy.Error in its chain has the
//     reason and the last failure;
//   - Invalid for a wrong name, and for a reader that fails or ends early: its own error is in the
//     chain, and its Kind counts if it has one;
//   - TooLarge for a file that does not fit into 50,000 blocks, at once if size tells;
//   - otherwise a failure of the hub, storage or a connection: see the package documentation.
//
// An error has transport.ErrOutcomeUnknown in its chain if the last step may have taken effect
// although its answer was lost: the file may be stored if Result.Stored is false, and the hub may
// have the notification if it is true. Uploading the file again is safe: it replaces the file.
//
// The Result is complete when the error is nil; otherwise it says how far it went.
func (u *Uploader) Upload(ctx context.Context, name string, r io.Reader, size int64) (Result, error) {
	if name == "" {
		return Result{}, invalidName(name, "is empty")
	}
	if err := checkName(u.creds.DeviceID, name); err != nil {
		return Result{}, err
	}
	if r == nil {
		return Result{}, &transport.Error{Kind: transport.Invalid, Op: transport.OpSend, Proto: proto,
			Err: errors.New("reader is nil; give one, strings.NewReader(\"\") for an empty file")}
	}
	if size > u.plan.capacity() {
		return Result{}, u.plan.tooLarge("the file has")
	}
	if !u.enter() {
		return Result{}, errClosed
	}
	defer u.uploads.Done()

	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(u.closing, func() { cancel(errClosed) })()
	return newUpload(u, name, r, size).run(own)
}

func (u *Uploader) enter() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closeCalled {
		return false
	}
	u.uploads.Add(1)
	return true
}

// Close ends running uploads and notifies the hub, waits for them, at most for NotifyTimeout and
// for their readers, and closes all connections. Further Uploads fail with Closed. It may be called
// more than once and returns nil.
func (u *Uploader) Close() error {
	u.mu.Lock()
	u.closeCalled = true
	u.mu.Unlock()
	u.startClosing()
	u.uploads.Wait()
	u.finishClosing()
	u.hub.CloseIdleConnections()
	u.storage.CloseIdleConnections()
	return nil
}
