package fileupload_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

var (
	seeds = flag.Int("seeds", 30, "how many runs TestRandomFaults makes")
	seed  = flag.Uint64("seed", 0, "the only run that TestRandomFaults makes, unless 0")
)

// A few files are uploaded through random faults of all kinds that an upload can survive. A failing
// seed is printed; -seed repeats it.
func TestRandomFaults(t *testing.T) {
	first, last := uint64(1), uint64(*seeds)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	var fired int
	for s := first; s <= last; s++ {
		t.Run(fmt.Sprint("seed ", s), func(t *testing.T) { fired += playFaults(t, s) })
	}
	if *seed == 0 {
		require.Greater(t, fired, 5**seeds, "faults that happened")
	}
}

func playFaults(t *testing.T, seed uint64) (fired int) {
	draw := rand.New(rand.NewPCG(seed, 0))
	set := func(h *testbroker.Options, o *fileupload.Options) {
		h.Seed = seed
		h.Uploads.Digest = draw.IntN(2) == 0
		o.Parallel = 1 + draw.IntN(4)
	}
	inBubble(t, set, func(t *testing.T, r *rig) {
		var faults []*testbroker.Injected
		for _, f := range []fault.Fault{
			{Kind: fault.CutBlobBody}, {Kind: fault.SlowBlob, Delay: 20 * time.Second}, {Kind: fault.DamageBlob},
			{Kind: fault.AnswerStatus, Statuses: []int{500, 502, 503, 504, 429, 408}}, {Kind: fault.AnswerStatusAfter,
				Statuses: []int{500, 503, 408, 429, 499, 502, 504}},
			{Kind: fault.ResetBeforeRequest}, {Kind: fault.ResetAfterRequest}, {Kind: fault.SwallowAnswer},
			{Kind: fault.DropDuringAnswer},
			{Kind: fault.SlowAnswer, Delay: 10 * time.Second}, {Kind: fault.WrongDate, Skew: 10 * time.Minute},
			{Kind: fault.NoContentLength},
			{Kind: fault.DropConnect}, {Kind: fault.SwallowConnack}, {Kind: fault.SlowConnack, Delay: 5 * time.Second},
		} {
			f.Probability, f.Times = 0.04, -1
			faults = append(faults, r.hub.Inject(f))
		}
		faults = append(faults, r.hub.Inject(fault.Fault{Kind: fault.ExpireUpload, After: draw.IntN(30)}))
		stop, stopped := make(chan struct{}), make(chan struct{})
		outages := rand.New(rand.NewPCG(seed, 2))
		go func() { // outages of the network, until all files have arrived
			defer close(stopped)
			kinds := []fault.Kind{fault.Absent, fault.HalfOpen}
			for lasts := time.Duration(0); ; {
				timer := time.NewTimer(lasts + time.Duration(outages.IntN(120))*time.Second)
				select {
				case <-timer.C:
				case <-stop:
					timer.Stop()
					return
				}
				lasts = time.Duration(1+outages.IntN(300)) * time.Second
				r.hub.Inject(fault.Fault{Kind: kinds[outages.IntN(2)], For: lasts})
				r.hub.Drop("")
			}
		}()
		for i := range 3 {
			body, name := content(draw.IntN(600*kib)), fmt.Sprint("file ", i)
			size := int64(-1)
			if draw.IntN(2) == 0 {
				size = int64(len(body))
			}
			result, err := r.Upload(t.Context(), name, bytes.NewReader(body), size)
			require.NoError(t, err)
			require.Equal(t, int64(len(body)), result.Size)
			r.stored(t, name, body)
			var told int
			for _, up := range r.hub.Uploads() {
				require.NotEqual(t, hubdata.UploadFailed, up.State)
				if up.Blob == result.Blob && up.State == hubdata.UploadSucceeded {
					told++
					require.Equal(t, result.Size, up.Size)
				}
			}
			require.GreaterOrEqual(t, told, 1)
		}
		close(stop)
		<-stopped
		for _, f := range faults {
			fired += f.Fired()
			f.Remove()
		}
	})
	return fired
}

// Whenever an upload is cancelled or closed, a reachable hub is notified: of a success if the file
// is stored, else of a failure. No upload stays counted as running.
func TestAnEndAtAnyMomentLeavesNoUploadRunning(t *testing.T) {
	first, last := uint64(1), uint64(10**seeds)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	stored := 0
	for s := first; s <= last; s++ {
		draw := rand.New(rand.NewPCG(s, 1))
		set := func(_ *testbroker.Options, o *fileupload.Options) { o.Parallel = 1 + draw.IntN(3) }
		inBubble(t, set, func(t *testing.T, r *rig) {
			for _, f := range []fault.Fault{
				{Kind: fault.SlowAnswer, Delay: time.Second, Probability: 0.5, Times: -1},
				{Kind: fault.SlowBlob, Delay: time.Second, Probability: 0.5, Times: -1},
				{Kind: fault.AnswerStatus, Route: fault.RouteUploadDone, Statuses: []int{500}, Probability: 0.5,
					Times: 2},
				{Kind: fault.ExpireUpload, Probability: 0.1, Times: -1},
			} {
				r.hub.Inject(f)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			end := time.AfterFunc(time.Duration(draw.IntN(6000))*time.Millisecond, func() {
				if s%2 == 0 {
					cancel()
				} else {
					_ = r.Close()
				}
			})
			defer end.Stop()
			result, err := r.Upload(ctx, "a", bytes.NewReader(content(draw.IntN(200*kib))), -1)
			require.Equal(t, err == nil, result.Stored, "seed %d: %v", s, err)
			if result.Stored {
				stored++
			}
			all := r.hub.Uploads()
			for _, up := range all {
				require.NotEqual(t, hubdata.UploadRunning, up.State, "seed %d: %v", s, err)
			}
			if len(all) > 0 {
				require.Equal(t, result.Stored, all[len(all)-1].State == hubdata.UploadSucceeded, "seed %d: %v", s, err)
			}
		})
	}
	if *seed == 0 {
		require.Greater(t, stored, *seeds, "and some were in time")
	}
}
