package nexthub_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
)

// watcher is a device with a handler of desired properties, and what that was told: "full 2" or
// "patch 3".
type watcher struct {
	*device.Client
	t *testing.T
	h *testbroker.Hub

	mu   sync.Mutex
	told []string
}

func watch(t *testing.T, h *testbroker.Hub, o *device.Options) *watcher {
	w := &watcher{Client: client(t, h, &nexthub.Hub{}, o), t: t, h: h}
	require.NoError(t, w.HandleDesired(func(_ context.Context, d device.Desired) {
		w.mu.Lock()
		defer w.mu.Unlock()
		kind := "patch"
		if d.Full {
			kind = "full"
		}
		w.told = append(w.told, fmt.Sprint(kind, " ", d.Version))
	}))
	open(t, w.Client)
	synctest.Wait()
	return w
}

// saw requires what the handler was told since the last call.
func (w *watcher) saw(want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(w.t, want, w.told)
	w.told = nil
}

// reads returns how often the hub was asked for the twin.
func (w *watcher) reads() (n int) {
	for _, r := range w.h.TwinLog("dev-1") {
		if r.Operation == hubdata.TwinGet {
			n++
		}
	}
	return n
}

func (w *watcher) change() {
	w.t.Helper()
	_, err := w.h.PatchDesired("dev-1", `{"a":1}`)
	require.NoError(w.t, err)
	synctest.Wait()
}

// reconnected loses the connection, does something meanwhile, and waits for the next one.
func (w *watcher) reconnected(meanwhile func()) {
	w.t.Helper()
	w.h.Drop("dev-1")
	meanwhile()
	time.Sleep(time.Minute)
	synctest.Wait()
	require.Equal(w.t, device.StateConnected, w.Status().State)
}

func TestNothingIsReadAtConnect(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		w := watch(t, h, nil)
		w.saw("full 1")
		w.reconnected(func() {})
		w.saw()
		w.reconnected(w.change)
		w.saw("full 2") // pushed
		w.reconnected(func() {})
		w.saw()
		require.Zero(t, w.reads())
		w.change()
		w.saw("patch 3")
		w.reconnected(func() {}) // a patch may have left something out
		w.saw("full 3")
		require.Zero(t, w.reads())
	})
}

func TestAProgramThatKeepsTheVersionGetsNoPush(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		_, err := h.PatchDesired("dev-1", `{"a":1}`)
		require.NoError(t, err)
		in := h.Inject(fault.Fault{Kind: fault.DuplicateDispatch, Message: "twin-push"})
		w := watch(t, h, &device.Options{DesiredVersion: 2})
		w.saw()
		w.change()
		w.saw("patch 3")
		require.Zero(t, w.reads())
		require.Zero(t, in.Fired())
	})
}

// Whatever befalls a push or a patch, the device has the newest properties after the next one, or
// when the read of the twin that waits for the push has no answer in time.
func TestTheTwinConvergesUnderEachFault(t *testing.T) {
	old := nextwire.ID{1}
	for name, c := range map[string]struct {
		fault fault.Fault
		told  []string // after two changes
		reads int
	}{
		"a patch is lost": {fault.Fault{Kind: fault.SwallowDispatch}, []string{"full 3"}, 1},
		"a patch has the nonce of an earlier connection": {fault.Fault{Kind: fault.MisnameDispatch, Bytes: old[:]},
			[]string{"full 3"}, 1},
		"a patch has another version of its type": {fault.Fault{Kind: fault.RetypeDispatch}, []string{"full 3"}, 1},
		"a patch is unreadable":                   {fault.Fault{Kind: fault.GarbleDispatch}, []string{"full 3"}, 1},
		"a patch has no payload": {fault.Fault{Kind: fault.GarbleDispatch,
			Bytes: nextwire.Append(nil, &nextwire.DesiredPatch{Version: 2})}, []string{"full 2", "patch 3"}, 1},
		"a patch names a version ahead": {fault.Fault{Kind: fault.GarbleDispatch,
			Bytes: nextwire.Append(nil, &nextwire.DesiredPatch{Version: 3})}, []string{"full 3"}, 2},
		"a patch names an old version": {fault.Fault{Kind: fault.GarbleDispatch,
			Bytes: nextwire.Append(nil, &nextwire.DesiredPatch{Version: 1})}, []string{"full 3"}, 1},
		"a patch comes twice": {fault.Fault{Kind: fault.DuplicateDispatch}, []string{"patch 2", "patch 3"}, 0},
		"a patch comes late":  {fault.Fault{Kind: fault.SlowDispatch, Delay: time.Hour}, []string{"full 3"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
				w := watch(t, h, nil)
				w.saw("full 1")
				c.fault.Message = "desired-patch"
				in := h.Inject(c.fault)
				w.change()
				w.change()
				time.Sleep(2 * time.Hour)
				w.saw(c.told...)
				require.Equal(t, 1, in.Fired())
				require.Equal(t, c.reads, w.reads())
			})
		})
	}
}

func TestALostPushIsReadAfterAWhile(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		h.Inject(fault.Fault{Kind: fault.SwallowDispatch, Message: "twin-push"})
		w := watch(t, h, nil)
		w.saw()
		time.Sleep(time.Minute)
		w.saw("full 1")
		require.Equal(t, 1, w.reads())
	})
}

func TestAReplacedTwinIsTakenOverAlthoughItsVersionIsLower(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		w := watch(t, h, nil)
		w.change()
		w.change()
		w.saw("full 1", "patch 2", "patch 3")
		w.reconnected(func() {
			require.NoError(t, h.RemoveDevice("dev-1"))
			_, err := h.AddDevice("dev-1")
			require.NoError(t, err)
			w.change()
		})
		w.saw("full 2")
		w.change()
		w.saw("patch 3")
	})
}

// An answer of the wrong type, or one that cannot be read, fails the request at once; a lost one
// does so in time. The policy repeats it, unless that could apply a patch on a condition twice.
func TestAnswersThatCannotBeUsed(t *testing.T) {
	for name, c := range map[string]struct {
		kind  fault.Kind
		after time.Duration
		err   error
	}{
		"wrong type":          {fault.RetypeDispatch, 0, transport.Protocol},
		"unreadable":          {fault.GarbleDispatch, 0, transport.Protocol},
		"lost":                {fault.SwallowDispatch, 30 * time.Second, transport.Timeout},
		"of another request":  {fault.MisnameDispatch, 30 * time.Second, transport.Timeout},
		"of a later moment":   {fault.SlowDispatch, 30 * time.Second, transport.Timeout},
		"twice, so once more": {fault.DuplicateDispatch, 0, nil},
	} {
		for _, patient := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", retries ", patient), func(t *testing.T) {
				inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
					o := &device.Options{}
					if !patient {
						o.MessagePolicy = retrypolicy.NoRetry{}
					}
					cl := client(t, h, &nexthub.Hub{}, o)
					open(t, cl)
					for message, ask := range map[string]func() error{
						"get-response": func() error { _, err := cl.GetTwin(t.Context()); return err },
						"reported-patch-response": func() error {
							_, err := cl.PatchReported(t.Context(), []byte(`{"a":1}`))
							return err
						},
					} {
						h.Inject(fault.Fault{Kind: c.kind, Message: message, Delay: time.Hour})
						begin := time.Now()
						err := ask()
						if patient || c.err == nil {
							require.NoError(t, err)
						} else {
							require.ErrorIs(t, err, c.err)
							require.Equal(t, c.after, time.Since(begin))
						}
						require.NoError(t, ask())
					}
					h.Inject(fault.Fault{Kind: c.kind, Message: "reported-patch-response", Delay: time.Hour})
					twin, err := h.Twin("dev-1")
					require.NoError(t, err)
					_, err = cl.PatchReportedIf(t.Context(), []byte(`{"b":1}`), twin.ReportedVersion)
					if c.err != nil {
						require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
					} else {
						require.NoError(t, err)
					}
				})
			})
		}
	}
}

// A request that waits for its answer when the connection ends is repeated on the next one at once,
// unless that could apply a patch on a condition twice.
func TestARequestAboutTheTwinDoesNotWaitForALostConnection(t *testing.T) {
	for message, row := range map[string]struct {
		ask func(*watcher) error
		err error
	}{
		"get-response": {func(w *watcher) error {
			_, err := w.GetTwin(w.t.Context())
			return err
		}, nil},
		"reported-patch-response": {func(w *watcher) error {
			_, err := w.PatchReportedIf(w.t.Context(), []byte("{}"), 1)
			return err
		}, transport.ErrOutcomeUnknown},
	} {
		t.Run(message, func(t *testing.T) {
			inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
				w := watch(t, h, nil)
				in := h.Inject(fault.Fault{Kind: fault.SwallowDispatch, Message: message})
				begin, done := time.Now(), make(chan error)
				go func() { done <- row.ask(w) }()
				synctest.Wait()
				require.Equal(t, 1, in.Fired())
				h.Drop("dev-1")
				require.ErrorIs(t, <-done, row.err)
				require.Less(t, time.Since(begin), 10*time.Second, "long before the time-out")
			})
		})
	}
}

// Both readings of if_match 0 are served: the client names the version that it knows.
func TestPatchesWithoutConditionNeedNoLenientHub(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		in := h.Inject(fault.Fault{Kind: fault.StrictIfMatch, Times: 100})
		w := watch(t, h, nil)
		for version := range int64(3) {
			got, err := w.PatchReported(t.Context(), []byte(`{"a":1}`))
			require.NoError(t, err)
			require.Equal(t, version+2, got)
		}
		_, err := w.PatchReportedIf(t.Context(), []byte(`{"a":2}`), 99)
		require.ErrorIs(t, err, transport.Conflict)
		_, err = w.PatchReportedIf(t.Context(), []byte(`{"a":2}`), 4)
		require.NoError(t, err)
		require.Zero(t, in.Fired())

		// The outcome of a patch was lost with its connection: the birth-ack names the version after it.
		h.Inject(fault.Fault{Kind: fault.SwallowDispatch, Message: "reported-patch-response"})
		done := make(chan error)
		go func() {
			_, err := w.PatchReported(t.Context(), []byte(`{"a":3}`))
			done <- err
		}()
		synctest.Wait()
		w.reconnected(func() {})
		require.NoError(t, <-done)
	})
}
