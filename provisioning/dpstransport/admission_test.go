package dpstransport_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/transport"
)

// late is a hub that lets devices connect and refuses their subscriptions.
type late struct {
	*hubs
	refusal error
}

func (l *late) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	s, err := l.hubs.Dial(ctx, cfg)
	return &lateSession{s, cfg.Sink, l.refusal}, err
}

type lateSession struct {
	transport.Session
	sink    transport.Sink
	refusal error
}

func (s *lateSession) Do(q *transport.Request) {
	s.sink.Reply(q.ID, transport.Reply{Err: s.refusal})
}

// replies is a sink that keeps the error of the latest reply.
type replies struct {
	transport.Sink
	err error
}

func (r *replies) Reply(_ uint32, a transport.Reply) { r.err = a.Err }

// setupLate returns a Transport with keys to late hubs.
func setupLate(t *testing.T, s *service, h *hubs, keys int, refusal error) *dpstransport.Transport {
	first, err := transport.SharedKey(ownKey)
	require.NoError(t, err)
	h.t = t
	h.signers[0], _ = first(t.Context(), []byte("text"))
	id := &provisioning.Identity{IDScope: "0ne00ABCDEF", RegistrationID: "reg-0001"}
	if keys > 0 {
		id.Sign = first
	}
	if keys > 1 {
		id.SecondSign, err = provisioning.GroupKey(ownKey, "other")
		require.NoError(t, err)
	}
	registrar, err := provisioning.New(id, s, nil)
	require.NoError(t, err)
	tr, err := dpstransport.New(registrar, func(*transport.Credentials, *provisioning.Assignment) transport.Transport {
		return &late{h, refusal}
	}, nil)
	require.NoError(t, err)
	return tr
}

// ask makes one attempt with a request, and returns the error of its reply. The client ends the
// session then.
func ask(t *testing.T, tr *dpstransport.Transport, q *transport.Request) error {
	return askAfter(t, tr, 0, q)
}

// askAfter is ask with a request that comes later.
func askAfter(t *testing.T, tr *dpstransport.Transport, d time.Duration, q *transport.Request) error {
	sink := &replies{}
	s, err := tr.Dial(t.Context(), &transport.Config{Creds: tr.Credentials(), Sink: sink})
	require.NoError(t, err)
	time.Sleep(d)
	s.Do(q)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = s.Run(ctx)
	return sink.err
}

// A hub that refuses the device with its first subscription, as over AMQP with a certificate, has
// refused the assignment.
func TestARefusedSubscriptionLeadsBackToTheService(t *testing.T) {
	subscribe := &transport.Request{ID: 7, Op: transport.OpSubscribe, Want: transport.FeatureDesired}
	for name, row := range map[string]struct {
		kind  transport.Kind
		keys  int
		quest *transport.Request
		asked int // after three attempts
	}{
		"not found":            {transport.NotFound, 0, subscribe, 3},
		"unauthorized":         {transport.Unauthorized, 0, subscribe, 3},
		"not found, key":       {transport.NotFound, 1, subscribe, 3},
		"unauthorized, 2 keys": {transport.Unauthorized, 2, subscribe, 2},
		"a feature":            {transport.Forbidden, 0, subscribe, 1},
		"throttled":            {transport.Throttled, 0, subscribe, 1},
		"a twin":               {transport.NotFound, 0, &transport.Request{ID: 7, Op: transport.OpTwinGet}, 1},
		"certificates": {transport.NotFound, 0, &transport.Request{ID: 7, Op: transport.OpSubscribe,
			Want: transport.FeatureCertificates}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				s, h := &service{}, &hubs{}
				tr := setupLate(t, s, h, row.keys, refuse(row.kind))
				for i := range 3 {
					err := ask(t, tr, row.quest)
					require.ErrorIs(t, err, row.kind)
					if row.asked == 1 {
						continue
					}
					require.Equal(t, i < 2 || row.keys == 2, errfilter.Retryable(err), "%v", err)
				}
				require.Equal(t, row.asked, s.asked)
			})
		})
	}
}

// A session that was stable ends the row of refusals also for a refusal in this session.
func TestALateRefusalOfAStableSessionBeginsTheRowAnew(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := &service{}
		tr := setupLate(t, s, &hubs{}, 1, refuse(transport.NotFound))
		q := &transport.Request{ID: 7, Op: transport.OpSubscribe, Want: transport.FeatureDesired}
		for i, row := range []struct {
			lasts time.Duration
			retry bool
		}{{0, true}, {0, true}, {2 * time.Minute, true}, {0, true}, {0, false}} {
			err := askAfter(t, tr, row.lasts, q)
			require.ErrorIs(t, err, transport.NotFound)
			require.Equal(t, row.retry, errfilter.Retryable(err), i)
		}
		require.Equal(t, 5, s.asked)
	})
}

// Without a token, Unauthorized at the end of a connection is not due to one that expired.
func TestARefusedCertificateLeadsBackToTheService(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{}, &hubs{ends: refuse(transport.Unauthorized)}
		tr := setupLate(t, s, h, 0, nil)
		err := dial(t, tr)
		require.ErrorIs(t, err, transport.Unauthorized)
		require.True(t, errfilter.Retryable(err))
		require.Error(t, dial(t, tr))
		require.Equal(t, 2, s.asked)
	})
}

// A refusal that a clock may have caused is no reason.
func TestARefusedSubscriptionByAWrongClock(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{}, &hubs{t: t}
		sign, err := transport.SharedKey(ownKey)
		require.NoError(t, err)
		h.signers[0], _ = sign(t.Context(), []byte("text"))
		id := &provisioning.Identity{IDScope: "0ne00ABCDEF", RegistrationID: "reg-0001", Sign: sign,
			Earliest: time.Now().Add(time.Hour)}
		registrar, err := provisioning.New(id, s, nil)
		require.NoError(t, err)
		tr, err := dpstransport.New(registrar, func(*transport.Credentials, *provisioning.Assignment) transport.Transport {
			return &late{h, refuse(transport.Unauthorized)}
		}, nil)
		require.NoError(t, err)
		for range 3 {
			err := ask(t, tr, &transport.Request{ID: 7, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
			require.ErrorIs(t, err, transport.Unauthorized)
		}
		require.Equal(t, 1, s.asked)
	})
}

// A connection that lasts settles which key is right. When the hub refuses that later, the other
// one is tried first again.
func TestTheOtherKeyIsTriedAgainAfterAStableConnection(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{}, &hubs{block: true}
		tr := setup(t, s, h, 2, nil)
		for range 4 {
			h.errs = []error{refuse(transport.Unauthorized)}
			session, err := tr.Dial(t.Context(), &transport.Config{})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			_ = session.Run(ctx)
			cancel()
		}
		require.Equal(t, []bool{true, false, false, true, true, false, false, true}, h.keys)
		require.Equal(t, 1, s.asked)
	})
}
