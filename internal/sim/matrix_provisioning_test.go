package sim_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// serviceRow is a fault of the provisioning service and the promise about it.
type serviceRow struct {
	name  string
	fault fault.Fault
	// at is the only request during which the promise holds; zero: any.
	at fault.RouteKind
	// kinds are the Kinds of failures that the registration must report; empty: none.
	kinds []transport.Kind
	// terminal: Register fails, with one of kinds.
	terminal bool
	// least and most are the time that the fault costs; most is 0 for no more than least.
	least, most time.Duration
	// more is the number of requests that the fault costs.
	more int
	// progress: the fault needs an answer that the registration is in progress.
	progress bool
	// refused: the hub refuses the assignment, and the device registers again.
	refused bool
	// chain: the device registers with a signing request.
	chain bool
}

const (
	serviceTimeout = 10 * time.Second // of requests
	servicePause   = 3 * time.Second  // that the service asks for
	firstRetry     = time.Second      // first delay of the default policy
	slowRetry      = 10 * time.Second // least delay after throttling
	atRegister     = fault.RouteRegister
	atPoll         = fault.RouteOperation
)

var (
	forbidden   = transport.Forbidden
	conflict    = transport.Conflict
	invalid     = transport.Invalid
	unsupported = transport.Unsupported
)

// serviceRows has every kind of fault of the service.
func serviceRows() []serviceRow {
	type F = fault.Fault
	refuse := func(status int, after time.Duration) F {
		return F{Kind: fault.RefuseProvisioning, Status: status, RetryAfter: after}
	}
	answer := func(kind fault.Kind, text string) F { return F{Kind: kind, Text: text} }
	status := func(text string) F { return answer(fault.WrongStatus, text) }
	rows := []serviceRow{
		{name: " 429", fault: refuse(0, 0), kinds: kinds(throttled), least: slowRetry, most: 3 * slowRetry, more: 1},
		{name: " 429 and its time", fault: refuse(429, 40*time.Second), kinds: kinds(throttled), least: 40 * time.Second,
			most: time.Minute, more: 1},
		{name: " 503 and its time", fault: refuse(503, 40*time.Second), kinds: kinds(unavailable), least: 40 * time.Second,
			more: 1},
		{name: " 504", fault: refuse(504, 0), kinds: kinds(timeout), least: firstRetry, more: 1},
		{name: " 400", fault: refuse(400, 0), kinds: kinds(invalid), terminal: true},
		{name: " 401", fault: refuse(401, 0), kinds: kinds(unauthorized), terminal: true},
		{name: " 403", fault: refuse(403, 0), kinds: kinds(forbidden), terminal: true},
		{name: " 404, register", at: atRegister, fault: refuse(404, 0), kinds: kinds(notFound), terminal: true},
		{name: " 404, poll", at: atPoll, fault: refuse(404, 0), kinds: kinds(notFound), least: firstRetry,
			most: firstRetry + servicePause, more: 2},
		{name: " 409, register", at: atRegister, fault: refuse(409, 0), kinds: kinds(conflict), least: firstRetry, more: 1},
		{name: " 409, poll", at: atPoll, fault: refuse(409, 0), kinds: kinds(conflict), least: firstRetry,
			most: firstRetry + servicePause, more: 2},
		{name: " 412 twice, register", at: atRegister, fault: F{Kind: fault.RefuseProvisioning, Status: 412, Times: 2},
			kinds: kinds(conflict), terminal: true, least: firstRetry, more: 1},
		{name: "", fault: F{Kind: fault.DropBeforeProvisioning}, kinds: kinds(network), least: firstRetry, more: 1},
		{name: "", fault: F{Kind: fault.DropAfterProvisioning}, kinds: kinds(network), least: firstRetry, more: 1},
		{name: "", fault: F{Kind: fault.SwallowProvisioning}, kinds: kinds(timeout), least: serviceTimeout + firstRetry,
			more: 1},
		{name: "", fault: F{Kind: fault.SlowProvisioning, Delay: 5 * time.Second}, least: 5 * time.Second},
		{name: "", fault: F{Kind: fault.DuplicateProvisioning}},
		{name: "", fault: F{Kind: fault.MisnameProvisioning}, kinds: kinds(timeout), least: serviceTimeout + firstRetry,
			more: 1},
		{name: "", fault: F{Kind: fault.AnswerBeforePuback}},
		{name: "", fault: F{Kind: fault.ReorderProperties}},
		{name: "", fault: F{Kind: fault.GarbleProvisioning}, kinds: kinds(protocol), least: firstRetry, more: 1},
		{name: " 1 MiB", fault: F{Kind: fault.GarbleProvisioning, Bytes: []byte(strings.Repeat("x", 1<<20))},
			kinds: kinds(protocol, network), least: firstRetry, more: 1}, // paho ends the connection
		{name: " a page", fault: F{Kind: fault.GarbleProvisioning, Bytes: []byte("<html>")}, kinds: kinds(protocol),
			least: firstRetry, more: 1},
		{name: ", register", at: atRegister, fault: F{Kind: fault.OmitOperationID}, progress: true, least: 0,
			most: servicePause, more: 1},
		{name: ", poll", at: atPoll, fault: F{Kind: fault.OmitOperationID}},
		{name: " 20", fault: answer(fault.WrongRetryAfter, "20"), progress: true, at: atRegister,
			least: 20*time.Second - servicePause},
		{name: " a date", fault: answer(fault.WrongRetryAfter, "Tue, 01 Jan 2030 00:00:30 GMT"), progress: true,
			at: atRegister, least: 2*time.Second - servicePause, most: 30 * time.Second}, // only HTTPS has dates
		{name: " disabled", fault: status("disabled"), kinds: kinds(forbidden), terminal: true},
		{name: " failed", fault: status("failed"), kinds: kinds(invalid), terminal: true},
		{name: " odd", fault: status("odd"), kinds: kinds(transport.Unknown), terminal: true},
		{name: " assigning", fault: status("assigning"), least: servicePause, more: 1},
		{name: " unassigned, register", at: atRegister, fault: status("unassigned"), least: 2 * time.Second, more: 1},
		{name: " unassigned, poll", at: atPoll, fault: status("unassigned"), least: 2 * time.Second, more: 1},
		{name: "", fault: answer(fault.WrongDeviceID, "another"), refused: true},
		{name: " none", fault: answer(fault.WrongDeviceID, ""), kinds: kinds(protocol), least: firstRetry, more: 1},
		{name: "", fault: answer(fault.WrongHub, "gone.example.test"), refused: true},
		{name: " malformed", fault: answer(fault.WrongHub, "a b"), kinds: kinds(protocol), least: firstRetry, more: 1},
		{name: " unknown", fault: answer(fault.WrongProfile, "mqttV5"), kinds: kinds(unsupported), terminal: true},
		{name: " classic", fault: answer(fault.WrongProfile, "classic")},
		{name: "", fault: F{Kind: fault.WrongChain}, chain: true, refused: true},
		{name: " damaged", fault: F{Kind: fault.WrongChain, Bytes: []byte("no certificate")}, chain: true, refused: true},
	}
	for _, text := range []string{"", "0", "-1", "soon"} { // as if the service asked for nothing
		rows = append(rows, serviceRow{name: " " + strconv.Quote(text), fault: answer(fault.WrongRetryAfter, text),
			progress: true, at: atRegister, least: 2*time.Second - servicePause})
	}
	for i := range rows {
		rows[i].name = rows[i].fault.Kind.String() + rows[i].name
	}
	slices.SortStableFunc(rows, func(a, b serviceRow) int { return int(a.fault.Kind) - int(b.fault.Kind) })
	return rows
}

// serviceOp is an operation during which the fault happens.
type serviceOp struct {
	name  string
	route fault.RouteKind
	run   func(e *serviceEnv) error
}

var serviceOps = []serviceOp{
	{"register", fault.RouteRegister, (*serviceEnv).registers},
	{"poll", fault.RouteOperation, (*serviceEnv).registers},
	{"move", fault.RouteAny, (*serviceEnv).moves},
}

// TestProvisioningMatrix applies every fault of the provisioning service during every operation,
// over every carrier.
func TestProvisioningMatrix(t *testing.T) {
	for _, c := range carriers {
		t.Run(c.name, func(t *testing.T) {
			for i, r := range serviceRows() {
				for j, o := range serviceOps {
					if r.meets(c, o) && tried(i, j) {
						t.Run(o.name+"/"+r.name, func(t *testing.T) { serviceCell(t, c, o, r) })
					}
				}
			}
		})
	}
}

// Each kind of fault of the service has a row.
func TestProvisioningMatrixIsComplete(t *testing.T) {
	ofTPMs := []fault.Kind{fault.WrongChallenge, fault.RepeatChallenge, fault.WrongAuthenticationKey}
	for _, k := range fault.ProvisioningKinds() {
		if slices.Contains(ofTPMs, k) {
			continue // see package provisioning
		}
		if !slices.ContainsFunc(serviceRows(), func(r serviceRow) bool { return r.fault.Kind == k }) {
			t.Errorf("the service's fault %v has no row", k)
		}
	}
}

// meets reports whether the fault can happen during the operation.
func (r *serviceRow) meets(c carrier, o serviceOp) bool {
	return r.fault.Kind.Protocols()&c.protocol != 0 &&
		(r.at == fault.RouteAny || o.route == fault.RouteAny || r.at == o.route)
}

// serviceEnv is the system of one cell.
type serviceEnv struct {
	t         *testing.T
	row       serviceRow
	dps       *testbroker.DPS
	hubs      [2]*testbroker.Hub
	registrar *provisioning.Client
	key       crypto.Signer // of the signing request; nil: none
	in        *testbroker.Injected

	mu    sync.Mutex
	kinds []transport.Kind // of failures, as the registration reported them
}

func serviceCell(t *testing.T, c carrier, o serviceOp, r serviceRow) {
	testkit.In2030(t, func(t *testing.T) {
		before := testkit.Goroutines()
		e := &serviceEnv{t: t, row: r}
		e.row.fault.Route = o.route
		if r.at != fault.RouteAny {
			e.row.fault.Route = r.at
		}
		drops := r.fault.Kind == fault.DropBeforeProvisioning || r.fault.Kind == fault.DropAfterProvisioning
		if drops && c.protocol == hubdata.HTTP && o.route == fault.RouteOperation {
			e.row.kinds, e.row.least = nil, 0 // net/http repeats a GET on a new connection, once
		}
		// Faults of assignments need them in the answer to the request.
		e.make(c, o.route == fault.RouteRegister && !r.progress)
		if err := o.run(e); err != nil {
			t.Error(err)
		}
		require.Positive(t, e.in.Fired(), "the fault did not happen")
		for _, h := range e.hubs {
			require.NoError(t, h.Close())
		}
		require.NoError(t, e.dps.Close())
		synctest.Wait()
		require.Equal(t, before, testkit.Goroutines(), "goroutines")
	})
}

// make makes the service. If atOnce, the request to register gets the result.
func (e *serviceEnv) make(c carrier, atOnce bool) {
	t := e.t
	o := &testbroker.DPSOptions{RetryAfter: servicePause}
	if atOnce {
		o.Polls = -1
	}
	var err error
	e.dps, err = testbroker.NewDPS(o)
	require.NoError(t, err)
	for i := range e.hubs {
		e.hubs[i], err = testbroker.New(&testbroker.Options{HostName: hubName(i)})
		require.NoError(t, err)
		require.NoError(t, e.dps.Link(e.hubs[i]))
	}
	enrollment := dpsdata.Enrollment{ID: movingID, Hubs: []string{hubName(0)}}
	options := &provisioning.Options{RequestTimeout: serviceTimeout, OnEvent: func(v provisioning.Event) {
		if v.Err != nil {
			e.mu.Lock()
			e.kinds = append(e.kinds, transport.KindOf(v.Err))
			e.mu.Unlock()
		}
	}}
	if e.row.chain {
		enrollment.Issue = testbroker.NewCertAuthority("issuer").Issuer(time.Hour)
		e.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		options.CSR, err = dpscert.Request(movingID, e.key)
		require.NoError(t, err)
	}
	enrolled, err := e.dps.Enroll(enrollment)
	require.NoError(t, err)
	sign, err := transport.SharedKey(enrolled.PrimaryKey)
	require.NoError(t, err)
	e.registrar, err = provisioning.New(&provisioning.Identity{Endpoint: e.dps.HostName(), IDScope: e.dps.IDScope(),
		RegistrationID: movingID, Sign: sign}, c.make(c.options(e.dps, true)), options)
	require.NoError(t, err)
}

// registers registers once.
func (e *serviceEnv) registers() error {
	r := &e.row
	e.in = e.dps.Inject(r.fault)
	began := time.Now()
	a, err := e.registrar.Register(e.t.Context())
	took := time.Since(began)

	clean, requests := time.Duration(0), 1+r.more
	if r.fault.Route == fault.RouteOperation || r.progress {
		clean, requests = servicePause, requests+1
	}
	if r.terminal {
		if err == nil || !slices.Contains(r.kinds, transport.KindOf(err)) {
			return fmt.Errorf("Register returned %w, want one of %v", err, r.kinds)
		}
	} else if err != nil {
		return fmt.Errorf("Register: %w", err)
	} else if a.Hub == "" || a.DeviceID == "" {
		return fmt.Errorf("the assignment is empty: %+v", a)
	}
	if r.chain {
		if _, err := dpscert.Certificate(a.Chain, e.key)(e.t.Context()); err == nil {
			return errors.New("the chain of another key is accepted")
		}
	}
	slack := 200 * time.Millisecond // handshakes, and the jitter of the first delay
	if most := clean + max(r.least, r.most) + slack; took < clean+r.least-slack || took > most {
		return fmt.Errorf("it took %v, want %v to %v", took, clean+r.least, most)
	}
	if n := len(e.dps.Requests()); n > requests {
		return fmt.Errorf("%d requests, want at most %d: %+v", n, requests, e.dps.Requests())
	}
	return e.promised()
}

// promised checks the Kinds of failures.
func (e *serviceEnv) promised() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, k := range e.kinds {
		if !slices.Contains(e.row.kinds, k) {
			return fmt.Errorf("a failure of Kind %w, want %v", k, e.row.kinds)
		}
	}
	if len(e.kinds) == 0 && len(e.row.kinds) > 0 {
		return fmt.Errorf("no failure is reported, want %v", e.row.kinds)
	}
	return nil
}

// moves sends over a move to another hub, in the middle of which the fault happens.
func (e *serviceEnv) moves() error {
	t, r := e.t, &e.row
	tr, err := dpstransport.New(e.registrar, e.inner, nil)
	require.NoError(t, err)
	client, err := device.New(tr.Credentials(), tr, &device.Options{ReconnectSpread: -1})
	require.NoError(t, err)
	p := &party{env: &env{t: t}, client: client}
	if err := p.reconnected(); err != nil {
		return err
	}
	p.publish(5)
	if err := client.Flush(t.Context()); err != nil {
		return err
	}

	asked := len(e.dps.Requests())
	e.in = e.dps.Inject(r.fault)
	require.NoError(t, e.dps.Move(movingID, hubName(1)))
	require.NoError(t, e.hubs[0].RemoveDevice(movingID))
	p.publish(20)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for err := client.Flush(ctx); err != nil; err = client.Flush(ctx) { // the client gave up
		if ctx.Err() != nil {
			return fmt.Errorf("the device does not send: %w", err)
		}
		time.Sleep(time.Millisecond)
		_ = client.Open(ctx)
	}
	took := time.Since(began)
	if err := client.Close(); err != nil {
		return err
	}
	have := map[string]bool{}
	for _, h := range e.hubs {
		for _, m := range h.Messages() {
			have[m.MessageID] = true
		}
	}
	for _, m := range p.sent {
		if err := m.receipt.Wait(t.Context()); err != nil || !have[m.m.ID] {
			return fmt.Errorf("message %s: arrived %v, result %w", m.m.ID, have[m.m.ID], err)
		}
	}
	if a := tr.Assignment(); a.Hub != hubName(1) || a.DeviceID != movingID {
		return fmt.Errorf("the device is at %s as %s", a.Hub, a.DeviceID)
	}
	// The device notices, registers, polls twice at most, and connects.
	most, requests := time.Second+2*servicePause+max(r.least, r.most), 2+r.more
	if r.refused { // up to 5 attempts to find the hub's name
		most, requests = most+30*time.Second, requests+2
	}
	if r.terminal {
		requests += 2
	}
	if took > most {
		return fmt.Errorf("the move took %v, want at most %v", took, most)
	}
	if n := len(e.dps.Requests()) - asked; n > requests {
		return fmt.Errorf("%d requests, want at most %d", n, requests)
	}
	return e.promised()
}

// inner returns the transport to an assigned hub.
func (e *serviceEnv) inner(_ *transport.Credentials, a *provisioning.Assignment) transport.Transport {
	o := netopt.Options{Plaintext: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: a.Hub, IsNotFound: true}
	}}
	for _, h := range e.hubs {
		if h.HostName() == a.Hub {
			o = netopt.Options{TLS: h.ClientTLS(), Dial: h.Dial(testbroker.PortMQTTS)}
		}
	}
	if e.key != nil {
		o.Certificate = dpscert.Certificate(a.Chain, e.key)
	}
	return mqtt.New(&mqtt.Options{Network: o})
}
