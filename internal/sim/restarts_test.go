package sim_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// identity is what a device has besides its messages. Its stores survive a restart.
type identity struct {
	primary, secondary string // keys of the enrollment, as they were in the factory

	key          crypto.Signer // for certificates
	assignment   memoryStore
	certificates certificateStore
	renewer      *dpscert.Renewer // nil: the device connects with its key
	renewed      int              // certificates; guarded by world.mu
}

// certificateStore keeps the certificates in memory.
type certificateStore struct{ record *dpscert.Record }

func (s *certificateStore) Load() (*dpscert.Record, error) { return s.record, nil }
func (s *certificateStore) Save(r *dpscert.Record) error {
	s.record = r
	return nil
}

// issuer returns the service's issuer of certificates, nil if the device has none.
func (j *journey) issuer() func(*x509.CertificateRequest) ([][]byte, error) {
	if j.plan.life == 0 {
		return nil
	}
	return testbroker.NewCertAuthority("root").Issuer(j.plan.life)
}

// request returns the signing request of the device, nil if it connects with its key.
func (j *journey) request(t *testing.T) []byte {
	if j.plan.life == 0 {
		return nil
	}
	if j.identity.key == nil {
		sum := sha256.Sum256(fmt.Appendf(nil, "device %d", j.plan.seed))
		key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), sum[:])
		require.NoError(t, err)
		j.identity.key = key
	}
	csr, err := dpscert.Request(movingID, j.identity.key)
	require.NoError(t, err)
	return csr
}

func (j *journey) makeRenewer(t *testing.T, registrar *provisioning.Client) {
	if j.plan.life == 0 {
		return
	}
	var err error
	j.identity.renewer, err = dpscert.New(j.identity.key, &dpscert.Options{Registrar: registrar,
		Store: &j.identity.certificates, TryAgainAfter: 20 * time.Minute, Rand: rand.NewPCG(j.plan.seed, 6).Uint64,
		OnEvent: func(e dpscert.Event) {
			j.event("renew  %v", e)
			j.mu.Lock()
			defer j.mu.Unlock()
			if e.Step == dpscert.StepRenewed {
				j.identity.renewed++
			}
			j.asks.renewing(e)
		}})
	require.NoError(t, err)
}

// renewing notes a request of a renewal to the service, whose pace is its own.
func (l *askLedger) renewing(e dpscert.Event) {
	if e.Step == dpscert.StepRequesting && !e.AtHub {
		l.asked++
		l.began = append(l.began, time.Now())
	}
}

// restarted notes that a process begins, which knows nothing of failures. A registration that was
// not over begins anew.
func (l *askLedger) restarted() {
	l.reason = l.pending
	l.refused, l.pending, l.failures, l.nameFailures = false, false, 0, 0
}

// certified returns the transport to an assigned hub, with certificates if the plan has them.
func (j *journey) certified(e engine, creds *transport.Credentials, a *provisioning.Assignment,
	w *way) transport.Transport {
	r := j.identity.renewer
	if r == nil {
		return e.make(creds, w)
	}
	r.Offer(a.Chain)
	w.Certificate = func(ctx context.Context) (*tls.Certificate, error) { return r.Certificate(ctx) }
	return r.Around(e.make(creds, w))
}

// drawRestarts draws a plan of moves with restarts. In every other one the device has certificates,
// and the plan takes hours.
func drawRestarts(seed uint64, e engine) *movePlan {
	p := drawMoves(seed, e)
	r := rand.New(rand.NewPCG(seed, 201))
	between := durations(r)
	p.stored = true
	down := time.Minute
	if seed%2 == 0 {
		const factor = 100
		p.life, p.tls, p.length, down = 3*time.Hour, true, p.length*factor, 2*time.Hour
		for i := range p.steps {
			p.steps[i].at *= factor
		}
		kinds := []fault.Kind{fault.RefuseCertificate, fault.DropBeforeCertificate, fault.DropAfterCertificate,
			fault.SwallowCertificate, fault.SlowCertificate, fault.DuplicateCertificate, fault.MisnameCertificate,
			fault.GarbleCertificate, fault.WrongCertificate, fault.ForgetCertificate}
		for range r.IntN(4) {
			p.steps = append(p.steps, step{at: between(0, p.length), what: inject, count: r.IntN(p.hubs),
				fault: fault.Fault{Kind: kinds[r.IntN(len(kinds))], Times: 1 + r.IntN(2), Delay: between(time.Second, time.Hour)}})
		}
	}
	for range 1 + r.IntN(4) {
		p.steps = append(p.steps, step{at: between(0, p.length), what: restart, timeout: between(0, down)})
	}
	slices.SortStableFunc(p.steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return p
}

// TestSimulationOfRestarts is the simulation of moves with an outbox on the disk, and with the
// stored assignment and certificates. Processes end and begin at any time. What the outbox took
// arrives, and a restart alone is no reason to ask the service.
func TestSimulationOfRestarts(t *testing.T) {
	for _, e := range engines {
		if e.variant || e.shared || e.plain || e.next {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			simulateRestarts(t, func(seed uint64) *movePlan { return drawRestarts(seed, e) })
		})
	}
}

// TestSimulationOfKinds is the same with hubs of both connection profiles: a device with
// certificates goes from a classic hub to one of the profile mqttV5 and back, with its outbox.
func TestSimulationOfKinds(t *testing.T) {
	simulateRestarts(t, func(seed uint64) *movePlan {
		p := drawRestarts(2*seed, engines[0]) // with certificates
		p.kinds = true
		return p
	})
}

func simulateRestarts(t *testing.T, draw func(seed uint64) *movePlan) {
	total, runs := simulateMoves(t, true, draw)
	if runs >= 20 {
		require.Greater(t, total.moved, 5)
		require.Greater(t, total.mixed, 5, "runs with messages at neighbouring hubs: of both kinds, if there are two")
		require.Greater(t, total.restarts, 20)
		require.Greater(t, total.renewed, 10, "certificates")
	}
}

// diskOutbox is the outbox of a device on its disk, which survives a restart.
type diskOutbox struct {
	folder  string
	queue   *outbox.Queue
	running chan error // of the queue
	stop    context.CancelFunc
	failed  map[string]error // results of messages that the hub refused; guarded by world.mu
}

// begin begins a process.
func (j *journey) begin(t *testing.T) {
	j.makeClient(t)
	require.NoError(t, j.client.Start())
	o := j.outbox
	if o == nil {
		return
	}
	var err error
	o.queue, err = outbox.Open(o.folder, &outbox.Options{OnFailed: func(m *transport.Message, err error) {
		j.mu.Lock()
		o.failed[m.ID] = err
		j.mu.Unlock()
	}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	o.running, o.stop = make(chan error, 1), stop
	go func(running chan<- error, q *outbox.Queue, c *device.Client) { running <- keepRunning(ctx, q, c) }(o.running,
		o.queue, j.client)
}

// keepRunning begins Run again when it has ended because the client gave up.
func keepRunning(ctx context.Context, q *outbox.Queue, c *device.Client) error {
	for {
		err := q.Run(ctx, c)
		if failure := transport.Find(err); failure == nil || failure.Kind == transport.Closed || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Second)
	}
}

// end ends the process.
func (j *journey) end() {
	closing := time.Now()
	if err := j.client.Close(); err != nil {
		j.failf("Close: %w", err)
	}
	j.closed = max(j.closed, time.Since(closing))
	if o := j.outbox; o != nil {
		o.stop()
		if err := <-o.running; !errors.Is(err, transport.Closed) && !errors.Is(err, transport.Cancelled) {
			j.failf("Run: %w", err)
		}
		j.fail(o.queue.Close())
	}
}

// submit sends the messages of a step, or puts them into the outbox.
func (j *journey) submit(s *step) {
	if j.outbox == nil {
		j.do(s)
		return
	}
	for _, e := range j.messages(s) {
		j.fail(j.outbox.queue.Put(context.Background(), &e.m))
	}
}

// drain waits until everything is sent.
func (j *journey) drain() {
	if j.outbox == nil {
		j.calls.Wait()
		j.flush()
		return
	}
	for end := time.Now().Add(6 * time.Hour); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := j.outbox.queue.Flush(ctx)
		cancel()
		if err == nil {
			return
		}
		j.fail(j.client.Start()) // it may have given up
		time.Sleep(time.Second)  // until Run has begun again
	}
	j.failf("the outbox is not empty after 6 hours without faults: %+v", j.outbox.queue.Stats())
}

// checkOutbox compares the messages that the outbox took with the logs of the hubs.
func (j *journey) checkOutbox() error {
	bodies := map[string][]byte{}
	for _, m := range j.log {
		bodies[m.MessageID] = m.Body
	}
	refusals := j.ends
	for _, f := range j.refusals {
		refusals += f.Fired()
	}
	for _, e := range j.msgs {
		body, arrived := bodies[e.m.ID]
		err, refused := j.outbox.failed[e.m.ID]
		kinds := []transport.Kind{transport.Forbidden, transport.Invalid, transport.TooLarge, transport.Unknown}
		switch {
		case refused && refusals > 0 && slices.Contains(kinds, transport.KindOf(err)):
			refusals--
		case refused:
			j.failf("message %d failed: %w", e.n, err)
		case !arrived:
			j.failf("message %d is lost", e.n)
		case !bytes.Equal(body, e.m.Body):
			j.failf("message %d arrived with another body", e.n)
		}
	}
	if j.closed > time.Second {
		j.failf("Close took %v", j.closed)
	}
	return errors.Join(j.errs...)
}

// The ledger detects a message that the hub lost.
func TestTheLedgerOfRestartsNoticesASabotage(t *testing.T) {
	for _, e := range engines {
		if e.protocol != hubdata.MQTT || e.variant || e.plain || e.next {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				p := drawRestarts(2, e)
				p.steps = []step{
					{at: time.Minute, what: inject, fault: fault.Fault{Kind: fault.Forget, After: 3}},
					{at: 2 * time.Minute, what: enqueue, count: 10, size: 100},
					{at: 3 * time.Minute, what: restart, timeout: time.Minute},
				}
				j := travel(t, p, true)
				require.ErrorContains(t, j.checkJourney(), "message 4 is lost")
			})
		})
	}
}
