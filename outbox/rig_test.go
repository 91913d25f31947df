package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const deviceID = "dev-1"

// newClient starts a client of the hub; the caller closes it.
func newClient(t testing.TB, hub *testbroker.Hub, o *device.Options) *device.Client {
	t.Helper()
	return newClientOver(t, hub, mqtt.New(&mqtt.Options{Network: plain(hub, testbroker.PortMQTT)}), o)
}

func newClientOver(t testing.TB, hub *testbroker.Hub, tr transport.Transport, o *device.Options) *device.Client {
	t.Helper()
	c := unopened(t, hub, tr, o)
	require.NoError(t, c.Start())
	return c
}

func unopened(t testing.TB, hub *testbroker.Hub, tr transport.Transport, o *device.Options) *device.Client {
	t.Helper()
	creds, err := device.ParseConnectionString(hub.ConnectionString(deviceID))
	require.NoError(t, err)
	c, err := device.New(creds, tr, o)
	require.NoError(t, err)
	return c
}

// plain is the network to a port of the hub.
func plain(hub *testbroker.Hub, port testbroker.Port) netopt.Options {
	return netopt.Options{Plaintext: true, Dial: hub.Dial(port)}
}

func open(t testing.TB, folder string, o *outbox.Options) *outbox.Queue {
	t.Helper()
	q, err := outbox.Open(folder, o)
	require.NoError(t, err)
	return q
}

// Paths on a simulated disk, as the operating system writes them: its root, the queue's folder and
// the file of the mark.
var (
	root     = absolute("/")
	folder   = absolute("/outbox")
	markFile = filepath.Join(folder, "done")
)

func absolute(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		panic(err)
	}
	return path
}

func openOn(t testing.TB, fs outbox.FileSystem, o *outbox.Options) *outbox.Queue {
	t.Helper()
	q, err := outbox.OpenOn(fs, folder, o)
	require.NoError(t, err)
	return q
}

func numbered(n int) *transport.Message {
	return &transport.Message{
		ID: strconv.Itoa(n), ContentType: "application/json", Created: time.UnixMilli(1_700_000_000_000 + int64(n)),
		Properties: []transport.Property{{Name: "unit", Value: "C"}, {Name: "n", Value: strconv.Itoa(n)}},
		Body:       fmt.Appendf(nil, `{"n":%d}`, n),
	}
}

func put(t testing.TB, q *outbox.Queue, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		require.NoError(t, q.Put(t.Context(), numbered(n)))
	}
}

// start runs the queue until stop is called, which returns the result of Run. When start returns,
// Flush does not return the result of an earlier Run any more.
func start(q *outbox.Queue, c outbox.Client) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- q.Run(ctx, c) }()
	for q.Stopped() && len(ran) == 0 {
		runtime.Gosched()
	}
	return func() error {
		cancel()
		return <-ran
	}
}

// arrived returns the ids at the hub, each once, in order of first arrival.
func arrived(hub *testbroker.Hub) (ids []string) {
	have := map[string]bool{}
	for _, m := range hub.Messages() {
		if !have[m.MessageID] {
			have[m.MessageID] = true
			ids = append(ids, m.MessageID)
		}
	}
	return ids
}

func ids(from, to int) (all []string) {
	for n := from; n < to; n++ {
		all = append(all, strconv.Itoa(n))
	}
	return all
}

// sending is the Flush of a client that does not stop.
type sending struct{}

func (sending) Flush(context.Context) error { return nil }

// ignore is an OnFailed.
func ignore(*transport.Message, error) {}

// taker is a client that accepts messages and finishes each at once, as expired. No hub takes part.
type taker struct {
	sending
	most int // how many; 0: all
	mu   sync.Mutex
	got  []string
}

var errExpired = &transport.Error{Kind: transport.Expired, Op: transport.OpSend}

var errEnough = &transport.Error{Kind: transport.Closed, Op: transport.OpSend, Err: errors.New("the taker has enough")}

func (k *taker) Enqueue(_ context.Context, m *transport.Message, _ *device.Receipt) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.most > 0 && len(k.got) == k.most {
		return errEnough
	}
	k.got = append(k.got, m.ID)
	return errExpired
}

func (k *taker) ids() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.got...)
}

// take runs the queue until no message waits, and returns the messages' ids.
func take(t testing.TB, q *outbox.Queue) []string {
	t.Helper()
	k := &taker{}
	stop := start(q, k)
	require.NoError(t, flushSoon(t, q))
	require.ErrorIs(t, stop(), context.Canceled)
	return k.ids()
}

// ended returns the result of a Run that ends by itself.
func ended(t testing.TB, q *outbox.Queue, c outbox.Client) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return q.Run(ctx, c)
}

// onSync is a hook for fsyncs of segments.
func onSync(f func() error) func(op) error {
	return func(o op) error {
		if o.name == "sync" && strings.HasSuffix(o.path, ".messages") {
			return f()
		}
		return nil
	}
}

// flushSoon is Flush with a time limit. Messages that a taker has let expire, that DropOldest
// dropped or that could not be read are no failure.
func flushSoon(t testing.TB, q *outbox.Queue) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := q.Flush(ctx)
	if kind := transport.KindOf(err); kind == transport.Expired || kind == transport.Dropped ||
		errors.Is(err, outbox.ErrDamaged) {
		return nil
	}
	return err
}
