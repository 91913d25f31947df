package fileupload_test

import (
	"bytes"
	"crypto/md5"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const kib = 1 << 10

// A rig is an uploader and its hub, connected in memory.
type rig struct {
	hub *testbroker.Hub
	dev hubdata.Device
	*fileupload.Uploader

	mu      sync.Mutex
	retries []fileupload.Retry
	sent    []int64
}

// inBubble runs a test in fake time.
func inBubble(t *testing.T, set func(h *testbroker.Options, o *fileupload.Options), test func(t *testing.T, r *rig)) {
	t.Helper()
	testkit.In2030(t, func(t *testing.T) {
		h, o := &testbroker.Options{}, &fileupload.Options{BlockSize: 64 * kib, Network: netopt.Options{Plaintext: true}}
		if set != nil {
			set(h, o)
		}
		hub, err := testbroker.New(h)
		require.NoError(t, err)
		defer hub.Close()
		r := &rig{hub: hub}
		r.dev, err = hub.AddDevice("dev-1")
		require.NoError(t, err)
		if o.Network.Dial == nil {
			o.Network.Dial = hub.Dial(testbroker.PortHTTP)
		}
		o.OnRetry = func(retry fileupload.Retry) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.retries = append(r.retries, retry)
		}
		o.OnProgress = func(p fileupload.Progress) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.sent = append(r.sent, p.Sent)
		}
		r.Uploader, err = fileupload.New(credsOf(t, r.dev), o)
		require.NoError(t, err)
		defer func() { require.NoError(t, r.Close()) }()
		test(t, r)
	})
}

func credsOf(t testing.TB, d hubdata.Device) *transport.Credentials {
	sign, err := transport.SharedKey(d.PrimaryKey)
	require.NoError(t, err)
	return &transport.Credentials{Host: d.HostName, DeviceID: d.ID, Sign: sign}
}

// steps returns the steps that were retried.
func (r *rig) steps() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, retry := range r.retries {
		all = append(all, retry.Step)
	}
	return all
}

// content returns n pseudo-random bytes.
func content(n int) []byte {
	b := make([]byte, n)
	g := rand.NewChaCha8([32]byte{1})
	g.Read(b)
	return b
}

// stored checks that the store has the file and that the hub has recorded one upload.
func (r *rig) stored(t *testing.T, name string, want []byte) hubdata.Blob {
	t.Helper()
	b, ok := r.hub.Blob("dev-1/" + name)
	require.True(t, ok)
	require.NoError(t, b.Matches(bytes.NewReader(want)))
	sum := md5.Sum(want)
	require.Equal(t, sum[:], b.MD5)
	return b
}

func TestFilesOfAllSizesArrive(t *testing.T) {
	for _, size := range []int{0, 1, 64*kib - 1, 64 * kib, 64*kib + 1, 128 * kib, 1000 * kib} {
		for _, known := range []bool{true, false} {
			inBubble(t, nil, func(t *testing.T, r *rig) {
				body := content(size)
				announced := int64(-1)
				if known {
					announced = int64(size)
				}
				result, err := r.Upload(t.Context(), "logs/a b+ü.txt", iotest.OneByteReader(bytes.NewReader(body)), announced)
				require.NoError(t, err)
				b := r.stored(t, "logs/a b+ü.txt", body)
				blocks := len(b.Blocks)
				if b.Blocks[0].ID == "" {
					blocks = 0
				}
				require.Equal(t, fileupload.Result{
					URL:  "http://store.hub.example.test/uploads/dev-1/logs/a%20b%2B%C3%BC.txt",
					Blob: "dev-1/logs/a b+ü.txt", Size: int64(size), Blocks: blocks, MD5: md5.Sum(body), Stored: true,
					Duration: result.Duration,
				}, result)
				require.Equal(t, size > 64*kib || size == 64*kib && !known, blocks > 0)
				all := r.hub.Uploads()
				require.Len(t, all, 1)
				require.Equal(t, hubdata.UploadSucceeded, all[0].State)
				require.Equal(t, 201, all[0].StatusCode)
				require.Equal(t, int64(size), all[0].Size)
				require.Equal(t, int64(size), r.sent[len(r.sent)-1])
				require.IsIncreasing(t, append([]int64{-1}, r.sent...))
			})
		}
	}
}

func TestAFileOfTheSameNameIsReplaced(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		for i, size := range []int{300 * kib, 10, 200 * kib} {
			body := content(size)
			_, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
			require.NoError(t, err)
			require.Equal(t, i+1, r.stored(t, "a", body).Version)
		}
	})
}

// Faults of the hub, and the retries that each one causes.
func TestUploadsSurvive(t *testing.T) {
	body := content(300 * kib)
	for _, c := range []struct {
		name  string
		fault fault.Fault
		steps []string // retried
		least time.Duration
	}{
		{"cut in a block", fault.Fault{Kind: fault.CutBlobBody, After: 1}, []string{"block 2"}, 0},
		{"busy", fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteBlob, Statuses: []int{503},
			Blob: fault.PutBlock}, []string{"block 1"}, 10 * time.Second},
		{"busy, with a wish", fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteBlob,
			Statuses: []int{503}, Blob: fault.PutBlock, RetryAfter: 17 * time.Second}, []string{"block 1"},
			17 * time.Second},
		{"internal error", fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteBlob, Statuses: []int{500},
			Blob: fault.PutBlockList, RetryAfter: 3 * time.Second}, []string{"commit"}, 3 * time.Second},
		{"slow", fault.Fault{Kind: fault.SlowBlob, Delay: 25 * time.Second}, nil, 25 * time.Second},
		{"no answer", fault.Fault{Kind: fault.SwallowAnswer, Route: fault.RouteBlob, Blob: fault.PutBlockList},
			[]string{"commit"}, 30 * time.Second},
		{"damage", fault.Fault{Kind: fault.DamageBlob, Blob: fault.PutBlock}, []string{"block 1"}, 0},
		{"beginning refused", fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteUpload,
			Statuses: []int{429}, RetryAfter: time.Second}, []string{"beginning"}, 10 * time.Second},
		{"end refused", fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteUploadDone,
			Statuses: []int{500}, RetryAfter: 2 * time.Second}, []string{"notification"}, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(_ *testbroker.Options, o *fileupload.Options) { o.Parallel = 1 }, func(t *testing.T, r *rig) {
				in := r.hub.Inject(c.fault)
				began := time.Now()
				result, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
				require.NoError(t, err)
				require.Equal(t, 1, in.Fired())
				require.Equal(t, c.steps, r.steps())
				require.Equal(t, len(c.steps), result.Retries)
				took := time.Since(began)
				require.GreaterOrEqual(t, took, c.least)
				require.Less(t, took, c.least+2*time.Second)
				r.stored(t, "a", body)
				require.Equal(t, hubdata.UploadSucceeded, r.hub.Uploads()[0].State)
			})
		})
	}
}

// Each step of an upload may take effect although its answer is lost. Then it is repeated, and
// leaves behind no more than docs/retries.md lists under "What is repeated".
func TestRepeatedRequestsOfAnUpload(t *testing.T) {
	for _, step := range []struct {
		name    string // Retry.Step
		size    int
		where   fault.Fault
		uploads []hubdata.UploadState // at the hub
		version int                   // of the file
	}{
		{"beginning", 300 * kib, fault.Fault{Route: fault.RouteUpload},
			[]hubdata.UploadState{hubdata.UploadRunning, hubdata.UploadSucceeded}, 1},
		{"file", 10, fault.Fault{Route: fault.RouteBlob, Blob: fault.PutBlob},
			[]hubdata.UploadState{hubdata.UploadSucceeded}, 2},
		{"block 2", 300 * kib, fault.Fault{Route: fault.RouteBlob, Blob: fault.PutBlock, After: 1},
			[]hubdata.UploadState{hubdata.UploadSucceeded}, 1},
		{"commit", 300 * kib, fault.Fault{Route: fault.RouteBlob, Blob: fault.PutBlockList},
			[]hubdata.UploadState{hubdata.UploadSucceeded}, 2},
		{"notification", 300 * kib, fault.Fault{Route: fault.RouteUploadDone},
			[]hubdata.UploadState{hubdata.UploadSucceeded}, 1},
	} {
		for _, kind := range []fault.Kind{fault.ResetAfterRequest, fault.SwallowAnswer,
			fault.DropDuringAnswer, fault.AnswerStatusAfter} {
			t.Run(step.name+" "+kind.String(), func(t *testing.T) {
				inBubble(t, func(_ *testbroker.Options, o *fileupload.Options) { o.Parallel = 1 }, func(t *testing.T, r *rig) {
					f := step.where
					f.Kind = kind
					in := r.hub.Inject(f)
					body := content(step.size)
					result, err := r.Upload(t.Context(), "a", bytes.NewReader(body), int64(len(body)))
					require.NoError(t, err)
					require.Equal(t, 1, in.Fired())
					require.Equal(t, []string{step.name}, r.steps())
					require.Equal(t, 1, result.Retries)
					require.Equal(t, int64(step.size), result.Size)
					b := r.stored(t, "a", body)
					require.Equal(t, step.version, b.Version)
					require.Len(t, b.Blocks, (step.size+64*kib-1)/(64*kib), "each once")
					var states []hubdata.UploadState
					for _, up := range r.hub.Uploads() {
						states = append(states, up.State)
					}
					require.Equal(t, step.uploads, states)
				})
			})
		}
	}
}

// The hub records the outcome but answers with an error. The correlation of the next attempt is
// then unknown to it, which counts as success.
func TestANotificationThatWasAcceptedAndRefused(t *testing.T) {
	for _, status := range []int{408, 429, 499, 500, 502, 503, 504} {
		notifyAfter(t, fault.Fault{Statuses: []int{status}})
	}
	for _, code := range []int{400021, 400024, 404012} {
		notifyAfter(t, fault.Fault{Statuses: []int{code / 1000}, ErrorCode: code})
	}
}

func notifyAfter(t *testing.T, f fault.Fault) {
	t.Helper()
	f.Kind, f.Route = fault.AnswerStatusAfter, fault.RouteUploadDone
	for _, fails := range []bool{false, true} {
		// the delay after a 429 is at least 10 s
		patient := func(_ *testbroker.Options, o *fileupload.Options) { o.NotifyTimeout = time.Minute }
		inBubble(t, patient, func(t *testing.T, r *rig) {
			in := r.hub.Inject(f)
			var from io.Reader = strings.NewReader("a")
			if fails {
				from = iotest.ErrReader(io.ErrNoProgress)
			}
			_, err := r.Upload(t.Context(), "a", from, -1)
			require.Equal(t, 1, in.Fired())
			if fails {
				failed(t, err, transport.Invalid)
				require.NotContains(t, err.Error(), "could not be notified", "%d %d", f.Statuses, f.ErrorCode)
				require.Equal(t, hubdata.UploadFailed, r.hub.Uploads()[0].State)
				return
			}
			require.NoError(t, err, "%d %d", f.Statuses, f.ErrorCode)
			require.Equal(t, hubdata.UploadSucceeded, r.hub.Uploads()[0].State)
		})
	}
}

func TestAFileThatDoesNotFitIntoItsBlocks(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		fileupload.Tiny(r.Uploader)
		body := content(63)
		result, err := r.Upload(t.Context(), "a", bytes.NewReader(body[:62]), -1)
		require.NoError(t, err)
		require.Equal(t, 10, result.Blocks)
		var sizes []int64
		for _, b := range r.stored(t, "a", body[:62]).Blocks {
			sizes = append(sizes, b.Size)
		}
		require.Equal(t, []int64{1, 1, 2, 2, 4, 4, 8, 8, 16, 16}, sizes)

		_, err = r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
		failed(t, err, transport.TooLarge, "more than 62 bytes, which is all that 10 blocks hold")
		_, err = r.Upload(t.Context(), "a", bytes.NewReader(body), 63)
		failed(t, err, transport.TooLarge, "raise Options.BlockSize")
		all := r.hub.Uploads()
		require.Len(t, all, 2, "where the size tells, the hub is not asked")
		require.Equal(t, hubdata.UploadFailed, all[1].State)
		r.stored(t, "a", body[:62])
	})
}
