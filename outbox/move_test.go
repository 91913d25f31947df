package outbox_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// A device is moved to another hub and another device id, and its power is cut before, during and
// after the move. The next process sends what no hub has, with the old assignment or with the new
// one.
func TestAPowerCutDuringAMoveLosesNothing(t *testing.T) {
	for name, at := range map[string]func(m *move){
		"before it": func(m *move) {
			m.hold(m.hubs[0], slow)
			m.put(20)
		},
		"while the service does not answer": func(m *move) {
			m.hold(m.dps, fault.Fault{Kind: fault.SwallowProvisioning})
			m.leave()
			m.put(20)
		},
		"while the new hub does not answer": func(m *move) {
			m.hold(m.hubs[1], fault.Fault{Kind: fault.SwallowConnack})
			m.leave()
			m.put(20)
		},
		"while the new hub takes messages": func(m *move) {
			m.hold(m.hubs[1], slow)
			m.leave()
			m.put(20)
		},
		"after it": func(m *move) {
			m.leave()
			m.put(20)
			m.rest()
		},
	} {
		for _, a := range powerCuts {
			for _, forgets := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/assignment forgotten %v", name, a.name, forgets), func(t *testing.T) {
					testkit.Bubble(t, func(t *testing.T) { newMove(t).run(at, a, forgets) })
				})
			}
		}
	}
}

// slow keeps messages in flight.
var slow = fault.Fault{Kind: fault.SlowPuback, Delay: 20 * time.Second}

// move is a device that is moved from the first of two hubs to the second.
type move struct {
	t     *testing.T
	dps   *testbroker.DPS
	hubs  [2]*testbroker.Hub
	sign  func(ctx context.Context, text []byte) (mac []byte, err error)
	store dpstransport.Store
	holds []*testbroker.Injected
	safe  int // messages that were put

	// The running process.
	queue  *outbox.Queue
	client *device.Client
	stop   func() error
}

func newMove(t *testing.T) *move {
	testkit.StartClock()
	m := &move{t: t, store: dpstransport.File(filepath.Join(t.TempDir(), "assignment"))}
	var err error
	m.dps, err = testbroker.NewDPS(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.dps.Close()) })
	for i := range m.hubs {
		m.hubs[i], err = testbroker.New(&testbroker.Options{HostName: fmt.Sprintf("hub%d.example.test", i)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.hubs[i].Close()) })
		require.NoError(t, m.dps.Link(m.hubs[i]))
	}
	e, err := m.dps.Enroll(dpsdata.Enrollment{ID: "reg-1", DeviceID: "old", Hubs: []string{m.hubs[0].HostName()}})
	require.NoError(t, err)
	m.sign, err = transport.SharedKey(e.PrimaryKey)
	require.NoError(t, err)
	return m
}

// begin starts a process on d.
func (m *move) begin(d *disk) {
	registrar, err := provisioning.New(&provisioning.Identity{Endpoint: m.dps.HostName(), IDScope: m.dps.IDScope(),
		RegistrationID: "reg-1", Sign: m.sign}, dpshttp.New(&netopt.Options{Dial: m.dps.Dial(testbroker.PortHTTPS),
		TLS: m.dps.ClientTLS()}), nil)
	require.NoError(m.t, err)
	tr, err := dpstransport.New(registrar, func(creds *transport.Credentials,
		_ *provisioning.Assignment) transport.Transport {
		h := m.hubs[slices.IndexFunc(m.hubs[:], func(h *testbroker.Hub) bool { return h.HostName() == creds.Host })]
		return mqtt.New(&mqtt.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortMQTT), Plaintext: true}})
	}, &dpstransport.Options{Store: m.store})
	require.NoError(m.t, err)
	m.client, err = device.New(tr.Credentials(), tr, nil)
	require.NoError(m.t, err)
	require.NoError(m.t, m.client.Start())
	m.queue = openOn(m.t, d, nil)
	m.stop = start(m.queue, m.client)
}

// put puts messages; some are in flight when it returns.
func (m *move) put(count int) {
	put(m.t, m.queue, m.safe, m.safe+count)
	m.safe += count
	time.Sleep(time.Second)
}

// hold injects a fault that lasts until the power is back.
func (m *move) hold(at interface {
	Inject(fault.Fault) *testbroker.Injected
}, f fault.Fault) {
	f.Times = 1000
	m.holds = append(m.holds, at.Inject(f))
}

// leave moves the device to the second hub. The first one cuts it off.
func (m *move) leave() {
	require.NoError(m.t, m.dps.Change("reg-1", func(e *dpsdata.Enrollment) { e.DeviceID = "new" }))
	require.NoError(m.t, m.dps.Move("reg-1", m.hubs[1].HostName()))
	require.NoError(m.t, m.hubs[0].RemoveDevice("old"))
	time.Sleep(10 * time.Second)
}

// rest waits until the hubs have acknowledged everything.
func (m *move) rest() {
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Minute)
	defer cancel()
	require.NoError(m.t, m.queue.Flush(ctx))
}

// run cuts the power and lets the next process go on. If it forgets, a new assignment was not on
// the disk when the power was cut.
func (m *move) run(at func(m *move), a after, forgets bool) {
	d := newDisk()
	m.begin(d)
	m.put(20)
	m.rest()
	first, err := m.store.Load()
	require.NoError(m.t, err)
	require.Equal(m.t, "old", first.Assignment.DeviceID)
	at(m)

	d, have := d.cut(a), m.arrived()
	m.end()
	if forgets {
		require.NoError(m.t, m.store.Save(first))
	}
	for _, in := range m.holds {
		in.Remove()
	}
	before := [...]int{len(m.hubs[0].Messages()), len(m.hubs[1].Messages())}
	m.begin(d)
	m.rest()
	m.end()
	for i, h := range m.hubs {
		last := map[uint64]int{} // per connection
		for _, got := range h.Messages()[before[i]:] {
			n, err := strconv.Atoi(got.MessageID)
			require.NoError(m.t, err)
			require.Greater(m.t, n+1, last[got.Connection], "the order")
			last[got.Connection] = n + 1
			have[got.MessageID] = true
		}
	}
	for n := range m.safe {
		require.True(m.t, have[strconv.Itoa(n)], "message %d is lost", n)
	}
}

// arrived returns the ids of the messages at the hubs.
func (m *move) arrived() map[string]bool {
	all := map[string]bool{}
	for _, h := range m.hubs {
		for _, id := range arrived(h) {
			all[id] = true
		}
	}
	return all
}

// end ends the process. It writes nothing to the disk that is left after the power cut.
func (m *move) end() {
	require.NoError(m.t, m.client.Close())
	_ = m.stop()
	require.NoError(m.t, m.queue.Close())
}
