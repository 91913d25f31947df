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
	"strings"
	"testing"
	"testing/synctest"
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
	from, to := seedRange()
	total, renewed, restarts := moveCounts{}, 0, 0
	for seed := from; seed <= to; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			p := draw(seed)
			folder := t.TempDir()
			testkit.Bubble(t, func(t *testing.T) {
				j := relive(t, p, folder)
				if err := j.checkRestarts(); err != nil {
					t.Errorf("seed %d: %v\n%v\n%s", seed, err, p, strings.Join(j.events, "\n"))
				} else if *oneSeed != 0 {
					t.Logf("%v\n%s", p, strings.Join(j.events, "\n"))
				}
				total.add(j.journey)
				renewed += j.identity.renewed
				restarts += j.restarts
			})
		})
	}
	t.Logf("%+v, %d restarts, %d certificates", total, restarts, renewed)
	if to-from >= 19 {
		require.Greater(t, total.moved, 5)
		require.Greater(t, restarts, 20)
		require.Greater(t, renewed, 10)
	}
}

// device is the state of one run with restarts.
type lives struct {
	*journey
	folder   string
	queue    *outbox.Queue
	running  chan error // of the queue
	stop     context.CancelFunc
	failed   map[string]error // results of messages that the hub refused; guarded by world.mu
	restarts int
}

// relive runs the plan and shuts everything down. It must run in a bubble.
func relive(t *testing.T, p *movePlan, folder string) *lives {
	testkit.StartClock()
	before := testkit.Goroutines()
	own := p.plan
	own.engine.twins = false // the ledger of twins is for one hub
	l := &lives{journey: &journey{world: &world{p: &own, start: time.Now()}, plan: p, state: map[string]any{}},
		folder: folder, failed: map[string]error{}}
	l.makeServices(t)
	l.begin(t)
	for i := range p.steps {
		s := &p.steps[i]
		time.Sleep(time.Until(l.start.Add(s.at)))
		switch s.what {
		case enqueue, send:
			l.put(s)
		case restart:
			l.end()
			l.event("process ended")
			time.Sleep(s.timeout)
			l.mu.Lock()
			l.asks.restarted()
			l.mu.Unlock()
			l.event("process begins")
			l.begin(t)
			l.restarts++
		default:
			l.step(s)
		}
		l.reopen()
	}
	time.Sleep(p.tail)
	l.mend()
	l.calls.Wait()
	l.put(&step{what: enqueue, count: 1, size: 20, at: p.length})
	l.empty()
	l.agree()
	l.end()
	time.Sleep(20 * time.Second)
	synctest.Wait()
	l.collect()
	synctest.Wait()
	if n := testkit.Goroutines(); n != before {
		l.fail(fmt.Errorf("%d goroutines before, %d after", before, n))
	}
	return l
}

// begin begins a process.
func (l *lives) begin(t *testing.T) {
	var err error
	l.queue, err = outbox.Open(l.folder, &outbox.Options{OnFailed: func(m *transport.Message, err error) {
		l.mu.Lock()
		l.failed[m.ID] = err
		l.mu.Unlock()
	}})
	require.NoError(t, err)
	l.makeClient(t)
	require.NoError(t, l.client.Start())
	ctx, stop := context.WithCancel(context.Background())
	l.running, l.stop = make(chan error, 1), stop
	go func(running chan<- error, q *outbox.Queue, c *device.Client) { running <- keepRunning(ctx, q, c) }(l.running,
		l.queue, l.client)
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
func (l *lives) end() {
	closing := time.Now()
	l.fail(l.client.Close())
	l.closed = max(l.closed, time.Since(closing))
	l.stop()
	if err := <-l.running; !errors.Is(err, transport.Closed) && !errors.Is(err, transport.Cancelled) {
		l.fail(fmt.Errorf("Run: %w", err))
	}
	l.fail(l.queue.Close())
}

// put puts the messages of a step into the outbox.
func (l *lives) put(s *step) {
	for _, e := range l.messages(s) {
		l.fail(l.queue.Put(context.Background(), &e.m))
	}
}

// reopen opens a client that has given up, as a supervisor does.
func (l *lives) reopen() { l.fail(l.client.Start()) }

// empty waits until the outbox is empty.
func (l *lives) empty() {
	for end := time.Now().Add(6 * time.Hour); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := l.queue.Flush(ctx)
		cancel()
		if err == nil {
			return
		}
		l.reopen()
		time.Sleep(time.Second) // until Run has begun again
	}
	l.fail(fmt.Errorf("the outbox is not empty after 6 hours without faults: %+v", l.queue.Stats()))
}

// checkRestarts compares the messages with the logs of the hubs, and the requests with the reasons.
func (l *lives) checkRestarts() error {
	l.fail(l.checkRequests())
	bodies := map[string][]byte{}
	for _, m := range l.log {
		bodies[m.MessageID] = m.Body
	}
	refusals := l.ends
	for _, f := range l.refusals {
		refusals += f.Fired()
	}
	for _, e := range l.msgs {
		body, arrived := bodies[e.m.ID]
		err, refused := l.failed[e.m.ID]
		kinds := []transport.Kind{transport.Forbidden, transport.Invalid, transport.TooLarge, transport.Unknown}
		switch {
		case refused && refusals > 0 && slices.Contains(kinds, transport.KindOf(err)):
			refusals--
		case refused:
			l.fail(fmt.Errorf("message %d failed: %w", e.n, err))
		case !arrived:
			l.fail(fmt.Errorf("message %d is lost", e.n))
		case !bytes.Equal(body, e.m.Body):
			l.fail(fmt.Errorf("message %d arrived with another body", e.n))
		}
	}
	if l.closed > time.Second {
		l.fail(fmt.Errorf("Close took %v", l.closed))
	}
	return errors.Join(l.errs...)
}

// The ledger detects a message that the hub lost.
func TestTheLedgerOfRestartsNoticesASabotage(t *testing.T) {
	for _, e := range engines {
		if e.protocol != hubdata.MQTT || e.variant || e.plain || e.next {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			folder := t.TempDir()
			testkit.Bubble(t, func(t *testing.T) {
				p := drawRestarts(2, e)
				p.steps = []step{
					{at: time.Minute, what: inject, fault: fault.Fault{Kind: fault.Forget, After: 3}},
					{at: 2 * time.Minute, what: enqueue, count: 10, size: 100},
					{at: 3 * time.Minute, what: restart, timeout: time.Minute},
				}
				l := relive(t, p, folder)
				require.ErrorContains(t, l.checkRestarts(), "message 4 is lost")
			})
		})
	}
}
