package dpstransport_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/transport"
)

const ownKey = "icIMXjwja1qYKoscSejYuXU0CWOBN4+SKhfWq13SBnA="

// service is a Carrier that assigns hub1, hub2 and so on.
type service struct {
	opened  atomic.Int32
	asked   int
	delay   time.Duration
	fail    error                // of Open
	refusal *provisioning.Answer // to all requests
	oneHub  bool                 // the device gets another id instead of another hub
}

func (s *service) Open(context.Context, *provisioning.Login) (provisioning.Session, error) {
	s.opened.Add(1)
	return s, s.fail
}
func (s *service) Close() {}

func (s *service) Exchange(_ context.Context, r *provisioning.Request) (*provisioning.Answer, error) {
	if s.refusal != nil {
		return s.refusal, nil
	}
	if r.Operation == "" && s.delay > 0 {
		return &provisioning.Answer{Status: 202, RetryAfter: s.delay,
			Body: []byte(`{"operationId":"o","status":"assigning"}`)}, nil
	}
	s.asked++
	if s.oneHub {
		return &provisioning.Answer{Status: 200, Body: []byte(`{"operationId":"o","status":"assigned","registrationState":{` +
			`"assignedHub":"hub.example.test","deviceId":"dev-` + strconv.Itoa(s.asked) + `"}}`)}, nil
	}
	return &provisioning.Answer{Status: 200, Body: []byte(`{"operationId":"o","status":"assigned","registrationState":{` +
		`"assignedHub":"hub` + strconv.Itoa(s.asked) + `.example.test","deviceId":"dev-1"}}`)}, nil
}

// memory is a Store.
type memory struct {
	record *dpstransport.Record
	saves  int
	err    error
}

func (m *memory) Load() (*dpstransport.Record, error) { return m.record, m.err }

func (m *memory) Save(r *dpstransport.Record) error {
	m.saves++
	own := *r
	m.record = &own
	return m.err
}

// hubs is the transport below: it fails as written, or makes a session.
type hubs struct {
	t       *testing.T
	errs    []error
	dialed  []string
	keys    []bool // whether the first key signed
	ends    error  // of Run
	creds   []*transport.Credentials
	signers [2][]byte
	block   bool // Run lasts until its context ends

	panicsInDial, panicsInRun bool
}

func (h *hubs) make(creds *transport.Credentials, _ *provisioning.Assignment) transport.Transport {
	h.creds = append(h.creds, creds)
	return h
}

func (h *hubs) Dial(_ context.Context, cfg *transport.Config) (transport.Session, error) {
	h.dialed = append(h.dialed, cfg.Creds.Host)
	if cfg.Creds.Sign != nil {
		mac, err := cfg.Creds.Sign(h.t.Context(), []byte("text"))
		require.NoError(h.t, err)
		h.keys = append(h.keys, mac[0] == h.signers[0][0])
	}
	if h.panicsInDial {
		panic("dial")
	}
	if len(h.errs) == 0 {
		return idle{h.ends, h.block, h.panicsInRun}, nil
	}
	err := h.errs[0]
	h.errs = h.errs[1:]
	return nil, err
}

type idle struct {
	ends          error
	block, panics bool
}

func (idle) Info() transport.Info { return transport.Info{} }

func (s idle) Run(ctx context.Context) error {
	if s.panics {
		panic("run")
	}
	if s.block {
		<-ctx.Done()
	}
	return s.ends
}

func (idle) Send([]transport.Item) {}
func (idle) Do(*transport.Request) {}

func refuse(kind transport.Kind) error {
	return &transport.Error{Kind: kind, Scope: transport.ScopeConnection, Op: transport.OpDial, Proto: "mqtt",
		Err: errors.New("no")}
}

// setup returns a Transport with one key, or two.
func setup(t *testing.T, s *service, h *hubs, keys int, o *dpstransport.Options) *dpstransport.Transport {
	first, err := transport.SharedKey(ownKey)
	require.NoError(t, err)
	second, err := provisioning.GroupKey(ownKey, "other")
	require.NoError(t, err)
	h.t = t
	h.signers[0], _ = first(t.Context(), []byte("text"))
	id := &provisioning.Identity{IDScope: "0ne00ABCDEF", RegistrationID: "reg-0001", Sign: first}
	if keys == 2 {
		id.SecondSign = second
	}
	return connect(t, id, s, h, nil, o)
}

// setupWith is setup with one key and options of the registrar.
func setupWith(t *testing.T, s *service, h *hubs, registrar *provisioning.Options,
	o *dpstransport.Options) *dpstransport.Transport {
	sign, err := transport.SharedKey(ownKey)
	require.NoError(t, err)
	h.t = t
	h.signers[0], _ = sign(t.Context(), []byte("text"))
	id := &provisioning.Identity{IDScope: "0ne00ABCDEF", RegistrationID: "reg-0001", Sign: sign}
	return connect(t, id, s, h, registrar, o)
}

func connect(t *testing.T, id *provisioning.Identity, s *service, h *hubs, ro *provisioning.Options,
	o *dpstransport.Options) *dpstransport.Transport {
	registrar, err := provisioning.New(id, s, ro)
	require.NoError(t, err)
	tr, err := dpstransport.New(registrar, h.make, o)
	require.NoError(t, err)
	require.NoError(t, tr.Credentials().Validate())
	return tr
}

// dial makes one attempt, and ends the session if there is one.
func dial(t *testing.T, tr *dpstransport.Transport) error {
	s, err := tr.Dial(t.Context(), &transport.Config{Creds: tr.Credentials()})
	if err != nil {
		return err
	}
	return s.Run(t.Context())
}

func TestARestartDoesNotAsk(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, store := &service{}, &memory{}
		var steps []dpstransport.Step
		o := &dpstransport.Options{Store: store, OnEvent: func(e dpstransport.Event) { steps = append(steps, e.Step) }}
		for range 3 {
			h := &hubs{}
			tr := setup(t, s, h, 1, o)
			require.NoError(t, dial(t, tr))
			require.NoError(t, dial(t, tr))
			require.Equal(t, []string{"hub1.example.test", "hub1.example.test"}, h.dialed)
			require.Len(t, h.creds, 1, "one transport for an assignment")
			require.Equal(t, "dev-1", tr.Assignment().DeviceID)
		}
		require.Equal(t, 1, s.asked)
		require.Equal(t, []dpstransport.Step{dpstransport.StepRegistering, dpstransport.StepAssigned, dpstransport.StepLoaded,
			dpstransport.StepLoaded}, steps)
	})
}

// Which failures of a connection lead back to the service, and after how many.
func TestWhenTheServiceIsAsked(t *testing.T) {
	lookUp := &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection,
		Err: &net.DNSError{IsNotFound: true}}
	for name, row := range map[string]struct {
		err   error
		after int // 0: never
	}{
		"unauthorized": {refuse(transport.Unauthorized), 1},
		"forbidden":    {refuse(transport.Forbidden), 1},
		"not found":    {refuse(transport.NotFound), 1},
		"network":      {refuse(transport.Network), 50},
		"timeout":      {refuse(transport.Timeout), 50},
		"untrusted":    {refuse(transport.Untrusted), 50},
		"no such name": {lookUp, 5},
		"no name server": {&transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection,
			Err: &net.DNSError{IsTimeout: true}}, 50},
		"throttled":   {refuse(transport.Throttled), 0},
		"unavailable": {refuse(transport.Unavailable), 0},
		"quota":       {refuse(transport.Quota), 0},
		"clock":       {refuse(transport.ClockUnset), 0},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				s, h := &service{}, &hubs{}
				tr := setup(t, s, h, 1, nil)
				require.NoError(t, dial(t, tr))
				failures := row.after
				if failures == 0 {
					failures = 200
				}
				for i := range failures {
					h.errs = []error{row.err}
					err := dial(t, tr)
					require.ErrorIs(t, err, transport.KindOf(row.err))
					if i == failures-1 && row.after != 0 {
						require.True(t, errfilter.Retryable(err), "%v", err)
					}
					require.Equal(t, 1, s.asked)
				}
				require.NoError(t, dial(t, tr))
				if row.after == 0 {
					require.Equal(t, 1, s.asked)
					return
				}
				require.Equal(t, 2, s.asked)
				require.Equal(t, "hub2.example.test", tr.Assignment().Hub)
			})
		})
	}
}

func TestAConnectionResetsTheCount(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{}, &hubs{}
		tr := setup(t, s, h, 1, &dpstransport.Options{MaxFailures: 2})
		for range 5 {
			h.errs = []error{refuse(transport.Network)}
			require.Error(t, dial(t, tr))
			require.NoError(t, dial(t, tr))
		}
		require.Equal(t, 1, s.asked)
	})
}

// The keys of a device are tried within one attempt: no policy is asked between them.
func TestTheOtherKeyIsTriedAtTheHubFirst(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h, store := &service{}, &hubs{}, &memory{}
		tr := setup(t, s, h, 2, &dpstransport.Options{Store: store})
		h.errs = []error{refuse(transport.Unauthorized)}
		require.NoError(t, dial(t, tr))
		require.Equal(t, []bool{true, false}, h.keys)
		require.Equal(t, 1, s.asked)
		require.True(t, store.record.Assignment.SecondKey, "the next start begins with it")

		h.errs = []error{refuse(transport.Unauthorized), refuse(transport.Unauthorized)}
		require.True(t, errfilter.Retryable(dial(t, tr)))
		require.NoError(t, dial(t, tr))
		require.Equal(t, 2, s.asked, "both keys were refused")
	})
}

// A device that every hub refuses does not ask for ever.
func TestThreeRefusedAssignmentsAreTheEnd(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{}, &hubs{}
		tr := setup(t, s, h, 1, nil)
		for i := range 3 {
			h.errs = []error{refuse(transport.NotFound)}
			require.Equal(t, i < 2, errfilter.Retryable(dial(t, tr)))
		}
		require.Equal(t, 3, s.asked)
	})
}

// A hub that may lift its refusal does not end the device. The service is asked at once, because
// the device may have been moved, and then ever less often.
func TestARefusalThatMayBeLiftedAsksTheServiceEverLessOften(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{}, &hubs{}
		tr := setup(t, s, h, 1, nil)
		const asked = 5 * time.Minute
		for i, want := range []time.Duration{0, asked, 2 * asked, 4 * asked, 8 * asked, time.Hour, time.Hour} {
			h.errs = []error{&transport.Error{Kind: transport.Unauthorized, Scope: transport.ScopeConnection,
				Op: transport.OpDial, RetryAfter: asked, Err: transport.ErrMayBeLifted}}
			err := dial(t, tr)
			require.True(t, errfilter.Retryable(err))
			require.ErrorIs(t, err, transport.ErrMayBeLifted)
			require.Equal(t, want, transport.Find(err).RetryAfter)
			require.Equal(t, i+1, s.asked)
		}
	})
}

func TestAHubThatDropsTheDeviceLeadsBackToTheService(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{}, &hubs{ends: refuse(transport.NotFound)}
		tr := setup(t, s, h, 1, nil)
		err := dial(t, tr)
		require.ErrorIs(t, err, transport.NotFound)
		require.True(t, errfilter.Retryable(err))
		h.ends = refuse(transport.Unauthorized)
		require.False(t, errfilter.Retryable(dial(t, tr)), "an expired token is the client's to replace")
		require.Equal(t, 2, s.asked)
	})
}

// A registration that waits as the service asked keeps the attempt alive.
func TestALongRegistrationReportsProgress(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{delay: 2 * time.Minute}, &hubs{}
		tr := setup(t, s, h, 1, nil)
		last, longest := time.Now(), time.Duration(0)
		session, err := tr.Dial(t.Context(), &transport.Config{Progress: func() {
			longest, last = max(longest, time.Since(last)), time.Now()
		}})
		require.NoError(t, err)
		require.NoError(t, session.Run(t.Context()))
		require.Positive(t, longest)
		require.LessOrEqual(t, longest, 5*time.Second)
		require.LessOrEqual(t, time.Since(last), 5*time.Second)
	})
}

func TestStoresThatFailOrBelongToAnotherDevice(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := &service{}
		var events []dpstransport.Event
		o := &dpstransport.Options{Store: &memory{err: errors.New("no disk at https://b.example/?sig=abc1")},
			OnEvent: func(e dpstransport.Event) { events = append(events, e) }}
		require.NoError(t, dial(t, setup(t, s, &hubs{}, 1, o)))
		require.Len(t, events, 4)
		require.Equal(t, dpstransport.StepStoreFailed, events[0].Step)
		require.Equal(t, dpstransport.StepStoreFailed, events[2].Step)
		require.Equal(t, "hub1.example.test", events[2].Hub)
		for _, e := range []dpstransport.Event{events[0], events[2]} {
			require.EqualError(t, e.Err, "no disk at https://b.example/?sig=(hidden)")
		}

		// the methods of an error may panic, as those of a nil pointer do
		events, o.Store = nil, &memory{err: (*os.PathError)(nil)}
		require.NoError(t, dial(t, setup(t, s, &hubs{}, 1, o)))
		require.Len(t, events, 4)
		for _, e := range []dpstransport.Event{events[0], events[2]} {
			require.NotErrorIs(t, e.Err, os.ErrNotExist)
		}

		for _, r := range []dpstransport.Record{
			{Registration: "0ne00ABCDEF/registrations/other", Assignment: provisioning.Assignment{Hub: "h.example.test",
				DeviceID: "d"}},
			{Registration: "0ne00ABCDEF/registrations/reg-0001", Assignment: provisioning.Assignment{Hub: "a b", DeviceID: "d"}},
		} {
			store := &memory{record: &r}
			h := &hubs{}
			require.NoError(t, dial(t, setup(t, s, h, 1, &dpstransport.Options{Store: store})))
			require.NotEqual(t, "h.example.test", h.dialed[0])
			require.Equal(t, 1, store.saves)
		}
	})
}

// A Store that cannot be read for the moment is read again as long as there is no assignment.
func TestAStoreThatCannotBeReadForTheMoment(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := &service{refusal: &provisioning.Answer{Status: 503, Body: []byte("{}")}}
		store := &memory{err: errors.New("too many open files"), record: &dpstransport.Record{
			Registration: "0ne00ABCDEF/registrations/reg-0001",
			Assignment:   provisioning.Assignment{Hub: "stored.example.test", DeviceID: "dev-1"}}}
		h := &hubs{}
		tr := setup(t, s, h, 1, &dpstransport.Options{Store: store})
		require.ErrorIs(t, dial(t, tr), transport.Unavailable)
		store.err = nil
		require.NoError(t, dial(t, tr))
		require.Equal(t, []string{"stored.example.test"}, h.dialed)
		require.Zero(t, store.saves)
	})
}

func TestOneClientATime(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		tr := setup(t, &service{}, &hubs{block: true}, 1, nil)
		s, err := tr.Dial(t.Context(), &transport.Config{})
		require.NoError(t, err)
		_, err = tr.Dial(t.Context(), &transport.Config{})
		require.ErrorIs(t, err, transport.Invalid)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			_ = s.Run(ctx)
			close(ended)
		}()
		synctest.Wait()
		_, err = tr.Dial(t.Context(), &transport.Config{})
		require.ErrorIs(t, err, transport.Invalid, "while the session runs")
		cancel()
		<-ended
		_, err = tr.Dial(t.Context(), &transport.Config{})
		require.NoError(t, err)
	})
}
