package sim_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
)

// TestSimulationOfMoves is the simulation with several hubs and a provisioning service. While the
// device sends, it is moved, disabled, deleted and enrolled again, under faults of the hubs and of
// the service.
func TestSimulationOfMoves(t *testing.T) {
	for _, e := range engines {
		if e.variant || e.shared || e.plain || e.next {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			total, runs := simulateMoves(t, false, func(seed uint64) *movePlan { return drawMoves(seed, e) })
			if runs >= 20 {
				require.Greater(t, total.moved, 5)
				require.Greater(t, total.refused, 5, "requests that the service refused")
				require.Greater(t, total.spread, 5, "runs whose messages are at several hubs")
			}
		})
	}
}

// simulateMoves runs the plan of each seed, and returns what they have met.
func simulateMoves(t *testing.T, withOutbox bool, draw func(seed uint64) *movePlan) (total moveCounts, runs int) {
	runs = eachSeed(t, 1, func(t *testing.T, seed uint64) {
		p := draw(seed)
		j := travel(t, p, withOutbox)
		j.conclude(t, p, j.checkJourney())
		total.add(j)
	})
	t.Logf("%+v", total)
	return total, runs
}

// moveCounts says what a number of runs have met.
type moveCounts struct{ moved, asked, requests, refused, spread, mixed, desired, restarts, renewed int }

func (n *moveCounts) add(j *journey) {
	n.moved += j.asks.moved
	n.asked += j.asks.asked
	n.requests += len(j.requests)
	for _, r := range j.requests {
		if r.Status >= 400 {
			n.refused++
		}
	}
	var full [2]int // hubs with messages, of even and odd numbers: of both kinds if there are two
	for i, k := range j.perHub {
		if k > 0 {
			full[i%2]++
		}
	}
	if full[0]+full[1] > 1 {
		n.spread++
	}
	if full[0] > 0 && full[1] > 0 {
		n.mixed++
	}
	n.desired += j.told
	n.restarts += j.restarts
	n.renewed += j.identity.renewed
}

// journey is the state of one run with a provisioning service.
type journey struct {
	*world
	plan *movePlan
	dps  *testbroker.DPS
	hubs []*testbroker.Hub
	// inService are the faults of the service.
	inService []*testbroker.Injected
	asks      askLedger
	renamed   int
	keys      int // keys made

	outbox    *diskOutbox // nil: the program enqueues its messages itself
	restarts  int
	transport *dpstransport.Transport
	requests  []dpsdata.Request
	perHub    []int // messages
	identity  identity

	state map[string]any // desired properties as the device knows them; guarded by world.mu
	told  int
}

const (
	movingID    = "reg-1"
	movingGroup = "group"
)

// key returns a new key.
func (j *journey) key() string {
	j.keys++
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d", j.plan.seed, j.keys))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// enrollment returns the id of the enrollment.
func (j *journey) enrollment() string {
	if j.plan.group {
		return movingGroup
	}
	return movingID
}

// signer returns the signature of the device with a key of the enrollment.
func (j *journey) signer(t *testing.T, key string) func(context.Context, []byte) ([]byte, error) {
	var sign func(context.Context, []byte) ([]byte, error)
	var err error
	if j.plan.group {
		sign, err = provisioning.GroupKey(key, movingID)
	} else {
		sign, err = transport.SharedKey(key)
	}
	require.NoError(t, err)
	return sign
}

// memoryStore keeps the assignment in memory.
type memoryStore struct{ record *dpstransport.Record }

func (m *memoryStore) Load() (*dpstransport.Record, error) { return m.record, nil }
func (m *memoryStore) Save(r *dpstransport.Record) error {
	own := *r
	m.record = &own
	return nil
}

// travel runs the plan and shuts everything down. It must run in a bubble. With an outbox,
// messages go through files on the disk.
func travel(t *testing.T, p *movePlan, withOutbox bool) *journey {
	testkit.StartClock()
	before := testkit.Goroutines()
	own := p.plan
	own.engine.twins = false // the ledger of twins is for one hub
	j := &journey{world: &world{chronicle: chronicle{start: time.Now()}, p: &own}, plan: p, state: map[string]any{}}
	if withOutbox {
		j.outbox = &diskOutbox{folder: t.TempDir(), failed: map[string]error{}}
	}
	j.makeServices(t)
	j.begin(t)
	stop := func() {}
	if !withOutbox {
		stop = j.supervise(p.reopenAfter, j.client)
	}
	for i := range p.steps {
		s := &p.steps[i]
		time.Sleep(time.Until(j.start.Add(s.at)))
		j.step(t, s)
		if withOutbox {
			j.fail(j.client.Start()) // it may have given up
		}
	}
	time.Sleep(p.tail)
	j.mend()
	if j.caughtUp() {
		// Over HTTPS a silent device does not notice a move.
		j.step(t, &step{what: enqueue, count: 1, size: 20, at: p.length})
		j.drain()
		j.agree()
	}
	stop()
	j.stats = j.client.Stats()
	j.end()
	j.settle()
	time.Sleep(20 * time.Second) // a hub that delays an answer notices the lost connection only when it sends it
	synctest.Wait()
	j.collect()
	synctest.Wait()
	if n := testkit.Goroutines(); n != before {
		j.failf("%d goroutines before, %d after", before, n)
	}
	return j
}

// caughtUp waits until all calls of the application have returned, and reports whether they did.
func (j *journey) caughtUp() bool {
	returned := make(chan struct{})
	go func() {
		j.calls.Wait()
		close(returned)
	}()
	select {
	case <-returned:
		return true
	case <-time.After(time.Hour):
		j.fail(errors.New("calls have not returned within an hour after all faults"))
		j.fail(j.client.Close()) // they return
		<-returned
		return false
	}
}

// makeServices makes the hubs and the service, and enrolls the device.
func (j *journey) makeServices(t *testing.T) {
	p := j.plan
	var err error
	j.dps, err = testbroker.NewDPS(&testbroker.DPSOptions{Seed: p.seed + 1, Polls: p.polls, Assigning: p.assigning,
		RetryAfter: p.retryAfter, RegistrationsPerMinute: p.perMinute,
		OnEvent: func(e event.Event) { j.event("dps    %v", e) }})
	require.NoError(t, err)
	for i := range p.hubs {
		h, err := testbroker.New(&testbroker.Options{Seed: p.seed + 1, HostName: hubName(i), MQTTv5: p.profile(i),
			Certificates: testbroker.CertificateOptions{Life: p.life},
			OnEvent:      func(e event.Event) { j.event("hub%d   %v", i, e) }})
		require.NoError(t, err)
		require.NoError(t, j.dps.Link(h))
		j.hubs = append(j.hubs, h)
	}
	_, err = j.dps.Enroll(dpsdata.Enrollment{ID: j.enrollment(), Group: p.group, PrimaryKey: j.key(),
		SecondaryKey: j.key(), Hubs: []string{hubName(0)}, Reprovision: p.reprovision, Desired: `{"first":0}`,
		Issue: j.issuer()})
	require.NoError(t, err)
}

// makeClient makes the device's client.
func (j *journey) makeClient(t *testing.T) {
	p := j.plan
	if j.identity.primary == "" {
		e, err := j.dps.Enrollment(j.enrollment())
		require.NoError(t, err)
		j.identity.primary, j.identity.secondary = e.PrimaryKey, e.SecondaryKey
	}
	id := &provisioning.Identity{Endpoint: j.dps.HostName(), IDScope: j.dps.IDScope(), RegistrationID: movingID,
		Sign: j.signer(t, j.identity.primary)}
	if p.secondKey {
		id.SecondSign = j.signer(t, j.identity.secondary)
	}
	registrar, err := provisioning.New(id, p.carrier.make(p.carrier.options(j.dps, p.tls)), &provisioning.Options{
		CSR: j.request(t), MQTTv5: p.kinds, Rand: rand.NewPCG(p.seed, 5).Uint64,
		OnEvent: func(e provisioning.Event) { j.event("dps    %v", e) }})
	require.NoError(t, err)
	o := &dpstransport.Options{MaxFailures: p.maxFailures, OnEvent: func(e dpstransport.Event) {
		j.event("move   %v %s %s moved %v reset %v: %v", e.Step, e.Hub, e.DeviceID, e.Moved, e.DataReset, e.Err)
		j.mu.Lock()
		err := j.asks.stepped(e, p)
		j.mu.Unlock()
		j.fail(err)
	}}
	if p.stored {
		o.Store = &j.identity.assignment
	}
	j.makeRenewer(t, registrar)
	j.transport, err = dpstransport.New(registrar, j.inner, o)
	require.NoError(t, err)
	j.client, err = device.New(j.transport.Credentials(), j.transport, &device.Options{
		RetryPolicy: j.policy(p.policy), Window: p.window, MaxMessages: p.maxOutbox, AckTimeout: p.ackTimeout,
		StableTime: p.stable, Rand: rand.NewPCG(p.seed, 2).Uint64,
		OnStatus: func(s device.Status) {
			j.event("device %v (%v) retry %d delay %v: %v", s.State, s.Reason, s.Retry, s.Delay, s.Err)
		},
	})
	require.NoError(t, err)
	if p.engine.twins {
		j.client.HandleDesired(j.wished)
	}
}

// inner returns the transport to an assigned hub. A hub that does not exist has no name.
func (j *journey) inner(creds *transport.Credentials, a *provisioning.Assignment) transport.Transport {
	w := &way{Plaintext: !j.plan.tls, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: a.Hub, IsNotFound: true}
	}}
	if i := j.hub(a.Hub); i >= 0 {
		w = j.plan.engine.inMemory(j.hubs[i], j.plan.tls)
	}
	e := j.plan.engine
	if a.MQTTv5() {
		e.make = func(_ *transport.Credentials, w *way) transport.Transport {
			o := w.mqtt()
			o.Dialect = &nexthub.Hub{}
			return mqtt.New(o)
		}
	}
	return witness{j.certified(e, creds, a, w), j}
}

// hub returns the index of a hub, -1 if there is none.
func (j *journey) hub(name string) int {
	return slices.IndexFunc(j.hubs, func(h *testbroker.Hub) bool { return h.HostName() == name })
}

// witness records the results of connections with hubs, below package dpstransport. It gives tokens
// a short life.
type witness struct {
	transport.Transport
	j *journey
}

func (w witness) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	own, creds := *cfg, *cfg.Creds
	creds.TokenLife = w.j.plan.tokenLife
	replies := &replyWitness{Sink: cfg.Sink, j: w.j}
	own.Creds, own.Sink = &creds, replies
	s, err := w.Transport.Dial(ctx, &own)
	if ctx.Err() == nil {
		w.j.mu.Lock()
		wrong := w.j.asks.dialed(err, w.j.plan)
		w.j.mu.Unlock()
		w.j.fail(wrong)
	}
	if err != nil {
		return nil, err
	}
	watched := witnessed{s, w.j, replies}
	if p, ok := s.(transport.Progressor); ok {
		return struct {
			witnessed
			transport.Progressor
		}{watched, p}, nil
	}
	return watched, nil
}

type witnessed struct {
	transport.Session
	j       *journey
	replies *replyWitness
}

// TwinNumber is that of the session below: package dpscert counts registrations.
func (s witnessed) TwinNumber() uint32 {
	if t, ok := s.Session.(transport.Twinned); ok {
		return t.TwinNumber()
	}
	return 0
}

func (s witnessed) Do(q *transport.Request) {
	if q.Op == transport.OpSubscribe {
		s.replies.id.Store(q.ID)
	}
	s.Session.Do(q)
}

// replyWitness records the results of subscriptions: over AMQP with a certificate, the hub refuses
// a device with its first link.
type replyWitness struct {
	transport.Sink
	j  *journey
	id atomic.Uint32
}

func (s *replyWitness) Reply(id uint32, r transport.Reply) {
	kind := transport.KindOf(r.Err)
	if id == s.id.Load() && (kind == transport.Unauthorized || kind == transport.NotFound) {
		s.j.mu.Lock()
		s.j.asks.refused, s.j.asks.reason = true, true
		s.j.mu.Unlock()
	}
	s.Sink.Reply(id, r)
}

func (s witnessed) Run(ctx context.Context) error {
	err := s.Session.Run(ctx)
	if ctx.Err() == nil {
		s.j.mu.Lock()
		s.j.asks.ended(err, s.j.plan.life > 0)
		s.j.mu.Unlock()
	}
	return err
}

// step runs one step.
func (j *journey) step(t *testing.T, s *step) {
	where, dev := j.whereabouts()
	switch s.what {
	case move, rename, remove, unenroll: // a twin that begins anew differs from the one before
		j.told++
		_ = j.dps.Change(j.enrollment(), func(e *dpsdata.Enrollment) { e.Desired = fmt.Sprintf(`{"first":%d}`, j.told) })
	}
	switch s.what {
	case injectService:
		j.event("inject at the service %+v", s.fault)
		j.inService = append(j.inService, j.dps.Inject(s.fault))
	case inject:
		at := j.hubs[max(s.count, 0)]
		if s.count < 0 && where != nil {
			at = where
		}
		f := s.fault
		if f.Kind == fault.RefuseConnect && at.ConnectionProfile() != "classic" {
			f.Code = 0x88 // what 3 is over MQTT 3.1.1
		}
		j.event("inject at %s %+v", at.HostName(), f)
		j.faults = append(j.faults, at.Inject(f))
	case drop:
		j.event("drop")
		for _, h := range j.hubs {
			h.Drop("")
		}
		j.dps.Drop()
	case move:
		j.event("move to hub %d, %d", s.count, s.size)
		if j.dps.Move(j.enrollment(), hubName(s.count)) == nil && where != nil && where != j.hubs[s.count] {
			switch s.size {
			case 1:
				_ = where.RemoveDevice(dev)
			case 2:
				_ = where.SetEnabled(dev, false)
			}
		}
	case rename:
		if !j.plan.group {
			j.renamed++
			id := "device-" + strconv.Itoa(j.renamed)
			j.event("rename to %s", id)
			_ = j.dps.Change(movingID, func(e *dpsdata.Enrollment) { e.DeviceID = id })
			j.leave(where, dev)
		}
	case remove:
		j.event("remove")
		j.leave(where, dev)
	case renewKey:
		j.renewKey(where, dev)
	case disable:
		if where != nil {
			j.event("disable at %s", where.HostName())
			_ = where.SetEnabled(dev, false)
			j.later(s.timeout, func() { _ = where.SetEnabled(dev, true) })
		}
	case disableEnrollment:
		j.event("disable enrollment")
		_ = j.dps.SetEnabled(j.enrollment(), false)
		j.later(s.timeout, func() { _ = j.dps.SetEnabled(j.enrollment(), true) })
	case unenroll:
		if e, err := j.dps.Enrollment(j.enrollment()); err == nil {
			j.event("unenroll")
			if err := j.dps.Delete(e.ID); err != nil {
				j.fail(err)
			}
			j.leave(where, dev)
			j.later(s.timeout, func() {
				e.Disabled = false
				if _, err := j.dps.Enroll(e); err != nil {
					j.fail(err)
				}
			})
		}
	case desire:
		for range s.count {
			if where != nil {
				j.told++
				_, _ = where.PatchDesired(dev, fmt.Sprintf(`{"n":%d}`, j.told))
			}
		}
	case reconnect:
		j.mu.Lock()
		j.asks.began = append(j.asks.began, time.Now())
		j.mu.Unlock()
		j.do(s)
	case restart:
		j.end()
		j.event("process ended")
		time.Sleep(s.timeout)
		j.mu.Lock()
		j.asks.restarted()
		j.mu.Unlock()
		j.event("process begins")
		j.begin(t)
		j.restarts++
	case enqueue, send:
		j.submit(s)
	default:
		j.do(s)
	}
}

// whereabouts returns where the service has assigned the device, nil if nowhere.
func (j *journey) whereabouts() (*testbroker.Hub, string) {
	r, err := j.dps.Registration(movingID)
	if i := j.hub(r.Hub); err == nil && i >= 0 {
		return j.hubs[i], r.DeviceID
	}
	return nil, ""
}

// leave removes the device from its hub.
func (j *journey) leave(where *testbroker.Hub, dev string) {
	if where != nil {
		_ = where.RemoveDevice(dev) // it may be gone
	}
}

// later does something after a time, as part of the plan.
func (j *journey) later(after time.Duration, do func()) {
	j.calls.Add(1)
	go func() {
		defer j.calls.Done()
		time.Sleep(after)
		do()
	}()
}

// renewKey replaces the first key, or the second one of a device that has only the first.
func (j *journey) renewKey(where *testbroker.Hub, dev string) {
	j.event("renew key")
	err := j.dps.Change(j.enrollment(), func(e *dpsdata.Enrollment) {
		if j.plan.secondKey {
			e.PrimaryKey = j.key()
		} else {
			e.SecondaryKey = j.key()
		}
	})
	e, _ := j.dps.Enrollment(j.enrollment())
	if err != nil || where == nil {
		return
	}
	first, second := e.PrimaryKey, e.SecondaryKey
	if j.plan.group {
		first, second = dpsdata.DeriveKey(first, movingID), dpsdata.DeriveKey(second, movingID)
	}
	_ = where.SetKeys(dev, first, second)
}

// mend ends all faults, and enables the device wherever it is disabled.
func (j *journey) mend() {
	for _, f := range slices.Concat(j.faults, j.inService) {
		f.Remove()
	}
	for _, h := range j.hubs {
		for _, d := range h.Devices() {
			_ = h.SetEnabled(d.ID, true)
		}
	}
	j.event("all faults removed")
}

// wished applies a change of desired properties.
func (j *journey) wished(_ context.Context, d device.Desired) {
	j.event("desired, full %v: %s", d.Full, d.JSON)
	j.mu.Lock()
	defer j.mu.Unlock()
	if d.Full {
		clear(j.state)
	}
	if err := merge(j.state, d.JSON); err != nil {
		j.errs = append(j.errs, err)
	}
}

// agree waits until the device is where the service says, and has the desired properties of its
// hub.
func (j *journey) agree() {
	differ := j.differ()
	for end := time.Now().Add(time.Hour); differ != nil && time.Now().Before(end); differ = j.differ() {
		time.Sleep(time.Second)
	}
	j.fail(differ)
}

// differ returns in what the device differs from service and hub, nil if in nothing.
func (j *journey) differ() error {
	synctest.Wait()
	where, dev := j.whereabouts()
	if where == nil {
		return errors.New("the service has not assigned the device")
	}
	if a := j.transport.Assignment(); a.Hub != where.HostName() || a.DeviceID != dev {
		return fmt.Errorf("the device is at %s as %s, the service says %s and %s", a.Hub, a.DeviceID, where.HostName(), dev)
	}
	if !j.plan.engine.twins {
		return nil
	}
	twin, err := where.Twin(dev)
	if err != nil {
		return err
	}
	want := map[string]any{}
	if err := json.Unmarshal(twin.Desired, &want); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if !reflect.DeepEqual(want, j.state) {
		return fmt.Errorf("the device knows the desired properties %v, its hub has %v", j.state, want)
	}
	return nil
}

// collect takes the logs of the service and of the hubs, and closes them.
func (j *journey) collect() {
	j.requests = j.dps.Requests()
	for i, h := range j.hubs {
		if n := h.Connections(""); n != 0 {
			j.fail(fmt.Errorf("%d connections left at hub %d", n, i))
		}
		for _, c := range h.Conflicts() {
			j.fail(fmt.Errorf("message %s came with two bodies", c.First.MessageID))
		}
		log := h.Messages()
		j.perHub = append(j.perHub, len(log))
		for _, m := range log {
			m.Connection |= uint64(i+1) << 32
			j.log = append(j.log, m)
		}
		j.fail(h.Close())
	}
	slices.SortStableFunc(j.log, func(a, b hubdata.Message) int { return a.Received.Compare(b.Received) })
	j.fail(j.dps.Close())
}

// checkJourney compares the ledgers with the hubs and the service.
func (j *journey) checkJourney() error {
	j.fail(j.checkRequests())
	if j.outbox != nil {
		return j.checkOutbox()
	}
	return j.check()
}
