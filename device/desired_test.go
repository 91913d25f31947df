package device_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// twinHub is a hub's twin as its sessions see it. Its version grows with each change of the back
// end; notifications may get lost.
type twinHub struct {
	f *fake

	mu      sync.Mutex
	version int64
	reads   int
	lag     int64 // reads return a document that is older by this many versions
}

func newTwinHub() *twinHub {
	h := &twinHub{f: &fake{}, version: 1}
	h.f.request = func(_ *fakeSession, r *transport.Request) (transport.Reply, bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if r.Op != transport.OpTwinGet {
			return transport.Reply{Status: 204, Version: 1}, true
		}
		h.reads++
		return transport.Reply{Status: 200, Body: fmt.Appendf(nil,
			`{"desired":{"n":%d,"$version":%[1]d},"reported":{"$version":1}}`, h.version-h.lag)}, true
	}
	return h
}

// change increments the version, and notifies the newest session if notify is set.
func (h *twinHub) change(notify bool) {
	h.mu.Lock()
	h.version++
	v := h.version
	h.mu.Unlock()
	if notify {
		h.notify(v)
	}
}

func (h *twinHub) notify(version int64) {
	s := h.f.last()
	s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureDesired, Version: version,
		Msg: &transport.Message{Body: fmt.Appendf(nil, `{"n":%d,"$version":%[1]d}`, version)}})
}

func (h *twinHub) readCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reads
}

// told collects the handler's calls, as "full 4" or "patch 5".
type told struct {
	mu  sync.Mutex
	all []string
	bad string
}

func (w *told) handle(_ context.Context, d device.Desired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kind := "patch"
	if d.Full {
		kind = "full"
	}
	w.all = append(w.all, fmt.Sprint(kind, " ", d.Version))
	n, _ := jsonscan.Member(d.JSON, "n")
	if string(n) != fmt.Sprint(d.Version) {
		w.bad = string(d.JSON)
	}
}

func (w *told) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bad != "" {
		panic("document of another version: " + w.bad)
	}
	return append([]string(nil), w.all...)
}

// watchedTwin returns a hub's twin, and what the handler of a connected client gets of it.
func watchedTwin(t *testing.T) (*twinHub, *told, *device.Client) {
	h, w := newTwinHub(), &told{}
	c, _ := client(t, h.f, nil)
	require.NoError(t, c.HandleDesired(w.handle))
	open(t, c)
	synctest.Wait()
	return h, w, c
}

func TestDesiredChangesComeInOrderAndOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, w, c := watchedTwin(t)
		require.Equal(t, []transport.Features{transport.FeatureTwin | transport.FeatureDesired}, h.f.subscriptions(),
			"before it is connected")
		require.Equal(t, []string{"full 1"}, w.list())
		h.change(true)
		h.change(true)
		h.notify(3) // twice
		h.notify(2) // late
		synctest.Wait()
		require.Equal(t, []string{"full 1", "patch 2", "patch 3"}, w.list())
		require.Equal(t, 1, h.readCount())

		h.change(false) // lost
		h.change(true)
		synctest.Wait()
		require.Equal(t, []string{"full 1", "patch 2", "patch 3", "full 5"}, w.list(), "a gap is filled by reading")

		h.f.lose(transport.Network, time.Minute)
		synctest.Wait()
		require.Len(t, w.list(), 4, "nothing has changed meanwhile")
		h.f.last().kill <- lost(transport.Network)
		h.change(false)
		h.change(false)
		time.Sleep(time.Minute)
		h.change(true)
		synctest.Wait()
		require.Equal(t, []string{"full 7", "patch 8"}, w.list()[4:])
		s := c.Stats()
		require.EqualValues(t, 6, s.DesiredChanges)
		require.EqualValues(t, 2, s.DesiredSkipped)
	})
}

// A handler that replaces a busy one gets the complete properties instead of the waiting changes.
// They are not older than those changes, also when the read of the twin is delayed.
func TestADesiredHandlerIsReplacedWhileChangesWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, w, other := newTwinHub(), &told{}, &told{}
		c, _ := client(t, h.f, nil)
		gate := make(chan struct{})
		c.HandleDesired(func(ctx context.Context, d device.Desired) {
			w.handle(ctx, d)
			if d.Version == 2 {
				<-gate
			}
		})
		open(t, c)
		synctest.Wait()
		h.change(true)
		h.change(true)
		h.change(true)
		synctest.Wait()
		h.mu.Lock()
		h.lag = 1
		h.mu.Unlock()
		c.HandleDesired(other.handle)
		close(gate)
		time.Sleep(5 * time.Second)
		require.Empty(t, other.list())
		h.mu.Lock()
		h.lag = 0
		h.mu.Unlock()
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"full 1", "patch 2"}, w.list())
		require.Equal(t, []string{"full 4"}, other.list())
		h.mu.Lock() // the read that the first call begins is not answered before the second call
		c.HandleDesired(w.handle)
		c.HandleDesired(other.handle)
		h.mu.Unlock()
		synctest.Wait()
		require.Equal(t, []string{"full 4", "full 4"}, other.list())
		require.Len(t, w.list(), 2)
	})
}

func TestASlowDesiredHandlerGetsTheNewest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, w := newTwinHub(), &told{}
		c, _ := client(t, h.f, nil)
		gate := make(chan struct{})
		c.HandleDesired(func(ctx context.Context, d device.Desired) {
			w.handle(ctx, d)
			<-gate
		})
		open(t, c)
		synctest.Wait()
		for range 20 {
			h.change(true)
		}
		synctest.Wait()
		close(gate)
		synctest.Wait()
		all := w.list()
		require.Equal(t, []string{"full 1", "patch 2", "patch 3", "patch 4", "patch 5", "patch 6", "patch 7", "patch 8",
			"patch 9", "full 21"}, all)
	})
}

// A twin that is older than a notification is read again.
func TestAReadThatIsOlderThanANotification(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, w, _ := watchedTwin(t)
		h.lag = 1
		h.change(false)
		h.change(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"full 1"}, w.list())
		require.Equal(t, 1+4, h.readCount(), "after 0, 1, 3 and 7 s")
		h.mu.Lock()
		h.lag = 0
		h.mu.Unlock()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"full 1", "full 3"}, w.list())
	})
}

// A version that the hub notified about and never has ends neither the reads nor the changes.
func TestANotifiedVersionThatTheHubNeverHas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, w, _ := watchedTwin(t)
		h.notify(math.MaxInt64)
		h.change(false)
		time.Sleep(24 * time.Hour)
		require.Equal(t, []string{"full 1", "full 2"}, w.list())
		require.Equal(t, 1+9, h.readCount())
		h.change(true)
		synctest.Wait()
		require.Equal(t, []string{"full 1", "full 2", "patch 3"}, w.list())
		require.Equal(t, 1+9, h.readCount())
	})
}

// begunAgain returns a twin whose changes were watched up to version 40, and that is now at version
// 1, as that of a device that was registered again.
func begunAgain(t *testing.T) (*twinHub, *told) {
	h, w := newTwinHub(), &told{}
	h.version = 40
	c, _ := client(t, h.f, nil)
	require.NoError(t, c.HandleDesired(w.handle))
	open(t, c)
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version = 1
	return h, w
}

// The changes of such a twin are passed on, although their versions are known.
func TestATwinThatBeginsAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, w := begunAgain(t)
		h.f.lose(transport.Network, time.Minute)
		h.change(true)
		synctest.Wait()
		require.Equal(t, []string{"full 40", "full 1", "patch 2"}, w.list())
	})
}

// A notification that comes while such a twin is read counts, although its version was passed on
// for the twin before.
func TestAChangeOfATwinThatBeginsAgainDuringItsRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, w := begunAgain(t)
		read := h.f.request
		h.f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
			h.f.request = read
			reply, ok := read(s, r)
			h.change(true) // before the answer
			return reply, ok
		}
		h.f.lose(transport.Network, time.Minute)
		require.Equal(t, []string{"full 40", "full 2"}, w.list())
	})
}

// The versions of another twin say nothing about the known ones: not even an equal one is known.
func TestAnotherTwinIsDeliveredAsAWhole(t *testing.T) {
	for _, version := range []int64{1, 3, 4, 5, 40} {
		bubble(t, func(t *testing.T) {
			h, w := newTwinHub(), &told{}
			h.f.twin = func(conn int) uint32 { return uint32(conn / 3) } // from the third connection on
			h.version = 4
			c, _ := client(t, h.f, nil)
			c.HandleDesired(w.handle)
			open(t, c)
			synctest.Wait()
			h.f.lose(transport.Network, time.Minute)
			require.Equal(t, []string{"full 4"}, w.list(), "the same twin")
			h.mu.Lock()
			h.version = version
			h.mu.Unlock()
			h.f.lose(transport.Network, time.Minute)
			require.Equal(t, []string{"full 4", fmt.Sprint("full ", version)}, w.list())
			h.change(true)
			synctest.Wait()
			require.Equal(t, fmt.Sprint("patch ", version+1), w.list()[2])
			h.f.lose(transport.Network, time.Minute)
			require.Len(t, w.list(), 4, "the complete properties follow a change, once")
		})
	}
}

// That holds for a handler that was registered after Open, too.
func TestAHandlerAfterOpenKnowsWhichTwinItHas(t *testing.T) {
	for next, want := range [][]string{{"full 1", "full 1"}, {"full 1"}} {
		bubble(t, func(t *testing.T) {
			h, w := newTwinHub(), &told{}
			h.f.twin = func(conn int) uint32 { return []uint32{1, uint32(next)}[conn-1] }
			c := opened(t, h.f, nil)
			synctest.Wait()
			require.NoError(t, c.HandleDesired(w.handle))
			synctest.Wait()
			h.f.lose(transport.Network, time.Minute)
			require.Equal(t, want, w.list())
		})
	}
}

// A change of another twin that comes before the client has read it is not taken for the next
// change of the known one.
func TestAChangeOfAnotherTwinIsNotTheNextOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, w := newTwinHub(), &told{}
		h.f.twin = func(conn int) uint32 { return uint32(conn) }
		c, _ := client(t, h.f, nil)
		c.HandleDesired(w.handle)
		open(t, c)
		synctest.Wait()
		h.f.subscribe = func(int) error {
			h.change(true) // before the answer to the subscription
			return nil
		}
		h.f.lose(transport.Network, time.Minute)
		require.Equal(t, []string{"full 1", "full 2"}, w.list())
	})
}

// A hub that refuses reads of the twin affects nothing else; the read is repeated at growing
// intervals.
func TestATwinThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{request: refusing(transport.Forbidden)}
		var unread []error
		begin := time.Now()
		var at []time.Duration
		c, w := client(t, f, &device.Options{Trace: &device.Trace{TwinUnread: func(err error) {
			unread = append(unread, err)
			at = append(at, time.Since(begin))
		}}})
		c.HandleDesired(func(context.Context, device.Desired) { panic("nothing to tell") })
		open(t, c)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.Less(t, len(unread), 24*6+20)
		require.Greater(t, len(unread), 24*6)
		for i, err := range unread {
			require.ErrorIs(t, err, transport.Forbidden)
			if i > 0 {
				pause := at[i] - at[i-1]
				require.GreaterOrEqual(t, pause, 10*time.Second)
				require.LessOrEqual(t, pause, 10*time.Minute)
			}
		}
		require.Equal(t, 10*time.Second, at[1])
		require.NoError(t, c.Send(t.Context(), msg(1)))
		require.Equal(t, []device.Reason{device.ReasonConnecting, device.ReasonConnectionOK}, w.reasons())
		n := len(unread)
		require.NoError(t, c.Close())
		require.Len(t, unread, n)
	})
}

// A single bad answer does not leave a device without its properties, even with a policy that never
// retries.
func TestATwinThatCannotBeReadOnce(t *testing.T) {
	for name, answer := range map[string]transport.Reply{
		"garbled": {Status: 200, Body: []byte(`{"desired":`)}, "invalid": {Err: refused(transport.Invalid)},
		"unauthorized": {Err: refused(transport.Unauthorized)},
		"not found":    {Err: refused(transport.NotFound)}, "unknown": {Err: refused(transport.Unknown)},
		"no retry": {Err: refused(transport.Unavailable)},
	} {
		run(t, name, func(t *testing.T) {
			h, w := newTwinHub(), &told{}
			inner, bad := h.f.request, 1
			h.f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
				if bad--; bad >= 0 {
					return answer, true
				}
				return inner(s, r)
			}
			c, _ := client(t, h.f, &device.Options{MessagePolicy: retrypolicy.NoRetry{}, RetryPolicy: constant(time.Second)})
			c.HandleDesired(w.handle)
			open(t, c)
			time.Sleep(11 * time.Second)
			require.Equal(t, []string{"full 1"}, w.list())
			bad = 2
			h.change(false)
			h.change(true) // a gap
			time.Sleep(20 * time.Second)
			h.change(true) // the twin is read at once
			synctest.Wait()
			require.Equal(t, []string{"full 1", "full 4"}, w.list())
		})
	}
}

// Close ends the handler's context and waits for it.
func TestCloseWaitsForTheDesiredHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newTwinHub()
		c, _ := client(t, h.f, nil)
		ended := false
		c.HandleDesired(func(ctx context.Context, _ device.Desired) {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
		})
		open(t, c)
		synctest.Wait()
		require.NoError(t, c.Close())
		require.True(t, ended)
	})
}

// With lost, duplicated and late notifications versions only rise, except for complete properties
// after changes, and in the end the handler has got the newest version.
func TestDesiredLedger(t *testing.T) {
	for range 30 {
		seed := rand.Uint64()
		bubble(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			h := newTwinHub()
			var mu sync.Mutex
			var versions []int64
			state, full := "", false
			c, _ := client(t, h.f, nil)
			c.HandleDesired(func(_ context.Context, d device.Desired) {
				if r := d.Version % 7; r == 0 {
					time.Sleep(300 * time.Millisecond)
				}
				mu.Lock()
				defer mu.Unlock()
				if n := len(versions); n > 0 && !d.Full && d.Version != versions[n-1]+1 {
					t.Errorf("seed %d: patch %d after %d", seed, d.Version, versions[n-1])
				} else if n > 0 && (d.Version < versions[n-1] || d.Version == versions[n-1] && (!d.Full || full)) {
					t.Errorf("seed %d: %d after %d", seed, d.Version, versions[n-1])
				}
				versions, full = append(versions, d.Version), d.Full
				n, _ := jsonscan.Member(d.JSON, "n")
				state = string(n)
			})
			open(t, c)
			for range 200 {
				switch r.IntN(12) {
				case 0:
					select {
					case h.f.last().kill <- lost(transport.Network):
					default: // the session has ended
					}
					time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
				case 1:
					h.change(false)
				case 2:
					h.notify(max(1, h.version-int64(r.IntN(4))))
				case 3:
					time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
				case 4:
					h.push(h.version)
				default:
					h.change(true)
				}
				time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
			}
			h.change(true)
			time.Sleep(time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if state != fmt.Sprint(h.version) {
				t.Errorf("seed %d: the device has %s, the hub %d", seed, state, h.version)
			}
		})
	}
}

// A hub sends a replacement of all properties in the same form as a change, so removed properties
// are not named. The next connection corrects that, once.
func TestARemovalByReplacementIsNotLostForGood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		desired := `{"interval":44,"led":true,"$version":2}`
		f := &fake{request: func(*fakeSession, *transport.Request) (transport.Reply, bool) {
			return transport.Reply{Status: 200, Body: []byte(`{"desired":` + desired + `,"reported":{}}`)}, true
		}}
		var all []string
		c, _ := client(t, f, nil)
		c.HandleDesired(func(_ context.Context, d device.Desired) {
			all = append(all, fmt.Sprint(d.Full, string(d.JSON)))
		})
		open(t, c)
		synctest.Wait()
		desired = `{"led":true,"$version":3}`
		f.last().cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureDesired, Version: 3,
			Msg: &transport.Message{Body: []byte(desired)}})
		for range 3 {
			time.Sleep(time.Minute)
			f.last().kill <- lost(transport.Network)
		}
		time.Sleep(time.Minute)
		require.Equal(t, []string{`true{"interval":44,"led":true,"$version":2}`, `false{"led":true,"$version":3}`,
			`true{"led":true,"$version":3}`}, all)
	})
}

// The twin is read after the subscription to changes, not before. A change between the two would be
// missed.
func TestTheTwinIsReadAfterTheSubscriptionToChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, w := newTwinHub(), &told{}
		held := false
		h.f.subscribe = func(int) error {
			if held {
				return errHold
			}
			return nil
		}
		c := opened(t, h.f, nil)
		_, err := c.GetTwin(t.Context())
		require.NoError(t, err)
		held = true
		c.HandleDesired(w.handle)
		synctest.Wait()
		require.Equal(t, []transport.Features{transport.FeatureTwin, transport.FeatureDesired}, h.f.subscriptions())
		h.change(false) // no subscription yet
		h.f.last().cfg.Sink.Reply(1<<31, transport.Reply{})
		synctest.Wait()
		require.Equal(t, []string{"full 2"}, w.list())
	})
}

// Changes missed while the twin is being read cause another read.
func TestChangesMissedWhileTheTwinIsRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, w := newTwinHub(), &told{}
		c, _ := client(t, h.f, nil)
		c.HandleDesired(w.handle)
		inner := h.f.request
		h.f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
			reply, ok := inner(s, r)
			if len(h.f.requests()) == 1 {
				h.change(false)
				s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureDesired, Msg: &transport.Message{Body: []byte("{}")}})
			}
			return reply, ok
		}
		open(t, c)
		synctest.Wait()
		require.Equal(t, []string{"full 2"}, w.list())
		require.Equal(t, 2, h.readCount())
	})
}

// A change that cannot be parsed makes the client read the twin.
func TestAChangeThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, w, _ := watchedTwin(t)
		h.change(false)
		h.f.last().cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureDesired, Version: 2,
			Msg: &transport.Message{Body: []byte(`{"n":`)}})
		synctest.Wait()
		require.Equal(t, []string{"full 1", "full 2"}, w.list())
	})
}
