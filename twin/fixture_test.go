package twin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/twin"
)

type window struct {
	From int `json:"from"`
	To   int `json:"to"`
}

func (w *window) Validate() error {
	if w.To < w.From {
		return errors.New("the window ends before it begins")
	}
	return nil
}

// settings are the desired properties of the tests.
type settings struct {
	Interval int    `json:"interval"`
	Level    string `json:"level"`
	Window   window `json:"window"`
}

func usual() settings { return settings{60, "info", window{1, 9}} }

// check refuses an interval below 1, and a window whose ends are exchanged.
func check(s settings) error {
	if s.Interval < 1 {
		return &twin.FieldError{Field: "interval", Err: errors.New("give 1 or more seconds")}
	}
	return s.Window.Validate()
}

// answered is the reported property for a value in force.
func answered(value string, status int, version int64, text string) string {
	return fmt.Sprintf(`{"value":%s,"ac":%d,"av":%d,"ad":%q}`, value, status, version, text)
}

// connect returns a client of the device or module, connected in memory over MQTT.
func connect(t *testing.T, hub *testbroker.Hub, connection string) *device.Client {
	t.Helper()
	creds, err := device.ParseConnectionString(connection)
	require.NoError(t, err)
	network := netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortMQTT)}
	c, err := device.New(creds, mqtt.New(&mqtt.Options{Network: network}), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// bubble runs a test in fake time with a hub and its device "dev-1".
func bubble(t *testing.T, f func(t *testing.T, hub *testbroker.Hub, dev hubdata.Device)) {
	t.Helper()
	testkit.In2030(t, func(t *testing.T) {
		hub, dev := hubfixture.OpenDevice(t, nil, "dev-1")
		f(t, hub, dev)
	})
}

// settle waits, in fake time, until everything is delivered and answered.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// reported returns the reported properties at the hub.
func reported(t *testing.T, hub *testbroker.Hub, id string) string {
	t.Helper()
	settle()
	doc, err := hub.Twin(id)
	require.NoError(t, err)
	return string(doc.Reported)
}

// patches returns the bodies of the patches that a device or module sent.
func patches(hub *testbroker.Hub, id string) (all []string) {
	for _, r := range hub.TwinLog(id) {
		if r.Operation == hubdata.TwinPatch {
			all = append(all, string(r.Body))
		}
	}
	return all
}

// errorsSeen collects the errors of OnError.
type errorsSeen struct {
	mu  sync.Mutex
	all []error
}

func (e *errorsSeen) add(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, err)
}

func (e *errorsSeen) take() (texts []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, err := range e.all {
		texts = append(texts, err.Error())
	}
	e.all = nil
	return texts
}

// fake is a client without a connection: it keeps reported properties as a hub does.
type fake struct {
	mu      sync.Mutex
	handle  device.DesiredHandler
	doc     map[string]any
	version int64
	reads   int
	patches []string
	fail    []error // of the next calls, nil for none
	block   bool    // patches wait for the end of their context
}

func newFake() *fake { return &fake{doc: map[string]any{}, version: 1} }

func (f *fake) HandleDesired(h device.DesiredHandler) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handle = h
	return nil
}

// deliver calls the handler, as the client does.
func (f *fake) deliver(ctx context.Context, version int64, full bool, text string) {
	f.mu.Lock()
	h := f.handle
	f.mu.Unlock()
	h(ctx, device.Desired{Version: version, Full: full, JSON: []byte(text)})
}

func (f *fake) failing() error {
	if len(f.fail) == 0 {
		return nil
	}
	err := f.fail[0]
	f.fail = f.fail[1:]
	return err
}

func (f *fake) GetTwin(context.Context) (*device.Twin, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if err := f.failing(); err != nil {
		return nil, err
	}
	return &device.Twin{Desired: []byte(`{}`), Reported: encode(f.doc), ReportedVersion: f.version}, nil
}

func (f *fake) PatchReported(ctx context.Context, patch []byte) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.block {
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return 0, &transport.Error{Kind: transport.Cancelled, Err: ctx.Err()}
	}
	if err := f.failing(); err != nil {
		return 0, err
	}
	f.patches = append(f.patches, string(patch))
	var change map[string]any
	if err := json.Unmarshal(patch, &change); err != nil {
		return 0, err
	}
	merge(f.doc, change)
	f.version++
	return f.version, nil
}

// merge changes doc as RFC 7396 says.
func merge(doc, patch map[string]any) {
	for name, change := range patch {
		inner, isObject := change.(map[string]any)
		old, _ := doc[name].(map[string]any)
		switch {
		case change == nil:
			delete(doc, name)
		case isObject:
			if old == nil {
				old = map[string]any{}
				doc[name] = old
			}
			merge(old, inner)
		default:
			doc[name] = change
		}
	}
}

// sent returns the patches since the last call.
func (f *fake) sent() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.patches
	f.patches = nil
	return all
}

func (f *fake) set(change func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}
