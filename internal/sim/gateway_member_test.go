package sim_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// member is a module or a leaf device of a site, with its ledger.
type member struct {
	*site
	who    int
	id     string
	client *device.Client
	// statuses are all that the client reported.
	statuses []device.Status

	outgoing chan []*entry  // to its producer, which sends one message after the other
	reports  chan *siteStep // to the goroutine that patches, one patch after the other
	sent     chan struct{}  // closed when the producer has ended
	reported chan struct{}  // closed when that goroutine has ended
	msgs     []*entry

	patches int
	// For each key of the reported properties the values that were patched, in order, and how many of
	// them the gateway is known to have.
	history map[string][]int
	known   map[string]int
	desired int64        // latest version
	twin    hubdata.Twin // as the hub has it in the end

	mu      sync.Mutex
	handled map[string]int // deliveries to handlers per message
	order   []string       // messages by their first delivery
	inputs  map[string]string
	echoes  []*entry // messages that handlers sent
	told    []device.Desired
	roots   *x509.CertPool // what the leaf device trusts
}

func newMember(s *site, who int) *member {
	m := &member{site: s, who: who, id: memberIDs[who],
		outgoing: make(chan []*entry, 100), reports: make(chan *siteStep, 100),
		sent: make(chan struct{}), reported: make(chan struct{}),
		history: map[string][]int{}, known: map[string]int{}, desired: 1,
		handled: map[string]int{}, inputs: map[string]string{}, roots: s.hub.RootCAs()}
	go m.produce()
	go m.patch()
	return m
}

// attach registers the member's handlers.
func (m *member) attach(t *testing.T) {
	t.Helper()
	switch m.who {
	case moduleB:
		m.client.HandleInput("one", m.handle)
		m.client.HandleInput("two", m.handle)
	case leafDevice:
		m.client.HandleMessages(m.handle)
	}
	m.client.HandleDesired(func(_ context.Context, d device.Desired) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.told = append(m.told, device.Desired{Version: d.Version, Full: d.Full})
	})
	require.NoError(t, m.client.HandleMethod("do", m.run))
}

// leafRoots returns the roots that the leaf device has, or newer ones when they do not verify the
// gateway.
func (s *site) leafRoots(_ context.Context, refused error) (*x509.CertPool, error) {
	m := s.members[leafDevice]
	m.mu.Lock()
	defer m.mu.Unlock()
	if refused != nil {
		m.roots = s.hub.RootCAs()
	}
	return m.roots, nil
}

// outputOf returns the output of message n of module a; empty for telemetry to the hub alone.
func outputOf(n int) string { return [...]string{"first", "second", ""}[n%3] }

// messages makes the messages of a step.
func (m *member) messages(step *siteStep) (batch []*entry) {
	for range step.count {
		e := &entry{n: len(m.msgs) + 1}
		e.m = transport.Message{ID: fmt.Sprintf("%s/%d", m.id, e.n), Body: make([]byte, step.size),
			Properties: []transport.Property{{Name: "n", Value: strconv.Itoa(e.n)}}}
		copy(e.m.Body, e.m.ID)
		if m.who == moduleA {
			e.m.Output = outputOf(e.n)
		}
		m.msgs = append(m.msgs, e)
		batch = append(batch, e)
	}
	return batch
}

// produce enqueues messages until outgoing is closed.
func (m *member) produce() {
	defer close(m.sent)
	for batch := range m.outgoing {
		for _, e := range batch {
			if err := m.client.Enqueue(context.Background(), &e.m, &e.receipt); err != nil {
				m.failf("Enqueue of %s: %w", e.m.ID, err)
			} else {
				e.accepted = true
			}
		}
	}
}

// settle collects the results of all messages.
func (m *member) settle() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, e := range append(m.msgs, m.echoes...) {
		if !e.accepted {
			continue
		}
		if e.result = e.receipt.Wait(ctx); errors.Is(e.result, context.DeadlineExceeded) {
			m.failf("%s has no result", e.m.ID)
		} else if !errors.Is(e.receipt.Wait(ctx), transport.Invalid) {
			m.failf("%s has two results", e.m.ID)
		}
	}
}

// numberOf returns the number in a message's id.
func numberOf(id string) int {
	n, _ := strconv.Atoi(id[strings.LastIndexAny(id, "/-")+1:])
	return n
}

// handle handles a message of an input, or from the cloud. It sometimes is slow, releases a message
// at its first delivery, panics, or rejects it. What comes by the input two leads to a message.
func (m *member) handle(ctx context.Context, got *transport.Message) error {
	n := numberOf(got.ID)
	m.mu.Lock()
	m.handled[got.ID]++
	times := m.handled[got.ID]
	if times == 1 {
		m.order = append(m.order, got.ID)
	}
	m.inputs[got.ID] = got.Input
	m.mu.Unlock()
	if m.who == moduleB {
		if !strings.HasPrefix(string(got.Body), got.ID) {
			m.failf("%s came with body %q", got.ID, got.Body)
		}
		if from := got.System; from == nil || from.ConnectionDeviceID+"/"+from.ConnectionModuleID != memberIDs[moduleA] {
			m.failf("%s came from %+v", got.ID, from)
		}
	}
	switch {
	case n%17 == 0:
		select {
		case <-time.After(time.Duration(n%7) * time.Second):
		case <-ctx.Done():
		}
	case n%10 == 0 && times == 1:
		return errNotYet
	case n%11 == 0 && times == 1:
		panic("a bug of the application")
	case n%13 == 0 && m.who == moduleB:
		return device.ErrReject
	}
	if got.Input == "two" {
		return m.echo(ctx, got.ID, times)
	}
	return nil
}

// echo sends a message of the handler's own.
func (m *member) echo(ctx context.Context, id string, times int) error {
	e := &entry{}
	e.m = transport.Message{ID: fmt.Sprintf("echo %d of %s", times, id), Body: []byte("echo"), Output: "echoes"}
	if err := m.client.Enqueue(ctx, &e.m, &e.receipt); err != nil {
		return err
	}
	e.accepted = true
	m.mu.Lock()
	defer m.mu.Unlock()
	m.echoes = append(m.echoes, e)
	return nil
}

// patch patches reported properties until reports is closed.
func (m *member) patch() {
	defer close(m.reported)
	for step := range m.reports {
		for range step.count {
			ctx, cancel := context.WithTimeout(context.Background(), step.length)
			m.patchOnce(ctx)
			cancel()
		}
	}
}

// patchOnce patches the next value of a key, and reports whether it succeeded.
func (m *member) patchOnce(ctx context.Context) bool {
	m.patches++
	key := fmt.Sprintf("k%d", m.patches%3)
	m.history[key] = append(m.history[key], m.patches)
	_, err := m.client.PatchReported(ctx, fmt.Appendf(nil, `{%q:%d}`, key, m.patches))
	m.event("%-8s patched %s to %d: %v", m.id, key, m.patches, err)
	if err == nil {
		m.known[key] = len(m.history[key])
	}
	return err == nil
}

// desire changes the desired properties.
func (m *member) desire() {
	version, err := m.hub.PatchDesired(m.id, fmt.Sprintf(`{"d":%d}`, m.desired))
	m.fail(err)
	m.desired = version
}

// agree makes both twins agree: a change reaches the member, and a patch the hub.
func (m *member) agree() {
	m.desire()
	m.until(m.id+" was not told the latest desired properties", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.told) > 0 && m.told[len(m.told)-1].Version == m.desired
	})
	for range 3 { // each key
		m.until("no patch of "+m.id+" succeeds", func() bool { return m.patchOnce(context.Background()) })
	}
}

// siteMethod is a call of a method and its result.
type siteMethod struct {
	runs   int
	status int
	err    error
}

// run is the method of a member.
func (m *member) run(ctx context.Context, call *device.MethodCall) (int, []byte) {
	m.site.mu.Lock()
	k := m.site.called[string(call.Body)]
	if k != nil {
		k.runs++
	}
	m.site.mu.Unlock()
	if k == nil {
		m.failf("a call that nobody made: %s", call.Body)
		return 400, nil
	}
	var n int
	_ = json.Unmarshal(call.Body, &n)
	if n%4 == 0 { // slow
		select {
		case <-time.After(time.Duration(n%9) * time.Second):
		case <-ctx.Done():
		}
	}
	return 200, call.Body
}

// newCall registers a call and returns its payload.
func (s *site) newCall() (k *siteMethod, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, payload = &siteMethod{}, strconv.AppendInt(nil, int64(len(s.called)+1), 10)
	s.called[string(payload)] = k
	return k, payload
}

// callFromCloud calls the method of m by a back end.
func (s *site) callFromCloud(m *member, limit, connect time.Duration) error {
	k, payload := s.newCall()
	got, err := s.hub.CallMethod(context.Background(), m.id, hubdata.MethodCall{Name: "do", Payload: payload,
		ResponseTimeout: limit, ConnectTimeout: connect})
	s.answered(k, payload, got.Status, got.Payload, err)
	return err
}

// callFromModule calls the method of m by module a.
func (s *site) callFromModule(m *member, limit, connect time.Duration) error {
	k, payload := s.newCall()
	device, module, _ := strings.Cut(m.id, "/")
	got, err := s.invoker.Invoke(context.Background(), edge.Target{DeviceID: device, ModuleID: module},
		edge.Method{Name: "do", Payload: payload, ResponseTimeout: limit, ConnectTimeout: connect})
	s.answered(k, payload, got.Status, got.Payload, err)
	if err == nil {
		s.mu.Lock()
		s.invoked++
		s.mu.Unlock()
	}
	return err
}

func (s *site) answered(k *siteMethod, payload []byte, status int, answer []byte, err error) {
	s.event("call %s: %d %s %v", payload, status, answer, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	k.status, k.err = status, err
	if err == nil && string(answer) != string(payload) {
		s.errs = append(s.errs, fmt.Errorf("call %s was answered with %s", payload, answer))
	}
}
