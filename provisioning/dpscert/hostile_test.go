package dpscert_test

import (
	"context"
	"crypto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/transport"
)

// scripted is a transport whose session answers each request for a certificate as written.
type scripted struct {
	answer func(k transport.Sink, id string) // of an OpIssue
	refuse error                             // of an OpSubscribe

	mu      sync.Mutex // guards the fields below
	asked   []string
	settled int
}

func (s *scripted) Dial(_ context.Context, cfg *transport.Config) (transport.Session, error) {
	return &scriptedSession{s, cfg.Sink}, nil
}

type scriptedSession struct {
	s *scripted
	k transport.Sink
}

func (*scriptedSession) Info() transport.Info  { return transport.Info{} }
func (*scriptedSession) Send([]transport.Item) {}
func (*scriptedSession) Run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s *scriptedSession) Do(q *transport.Request) {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	switch q.Op {
	case transport.OpSubscribe:
		s.k.Reply(q.ID, transport.Reply{Err: s.s.refuse})
	case transport.OpSettle:
		s.s.settled++
	case transport.OpIssue:
		id := string(q.Ref)
		s.s.asked = append(s.s.asked, id)
		go s.s.answer(s.k, id)
	default:
	}
}

// deliver delivers one answer.
func deliver(k transport.Sink, status, id, body string) bool {
	return k.Deliver(&transport.Delivery{Kind: transport.FeatureCertificates, Name: []byte(status), Ref: []byte{1, 2},
		Msg: &transport.Message{CorrelationID: id, Body: []byte(body)}})
}

// never is a Sink of a client that expects nothing.
type never struct{ t *testing.T }

func (n never) Done(uint16, error)            { n.t.Error("Done") }
func (n never) Reply(uint32, transport.Reply) { n.t.Error("Reply") }
func (n never) Deliver(*transport.Delivery) bool {
	n.t.Error("Deliver")
	return true
}

// overdue runs a device whose certificate must be renewed over s for a time.
func overdue(t *testing.T, s *scripted, d time.Duration) *world {
	w := newWorld(t, nil)
	time.Sleep(25 * day)
	r := w.renewer(dpscert.Options{Rand: func() uint64 { return 0 }})
	session, err := r.Around(s).Dial(t.Context(), &transport.Config{Creds: w.creds, Sink: never{t}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	require.ErrorIs(t, session.Run(ctx), context.DeadlineExceeded)
	return w
}

// A hub that accepts a request for ever ends an attempt after some minutes, and one that sends more
// than it is asked costs bounded memory and work.
func TestAHubThatFloods(t *testing.T) {
	for name, row := range map[string]struct {
		answer func(k transport.Sink, id string)
		kind   transport.Kind
		within time.Duration
	}{
		"accepted for ever": {func(k transport.Sink, id string) {
			for range 100 {
				deliver(k, "202", id, "{}")
				time.Sleep(time.Minute)
			}
		}, transport.Timeout, 13 * time.Minute},
		"other ids": {func(k transport.Sink, _ string) {
			for range 100_000 {
				deliver(k, "200", "other", `{"certificates":["AAAA"]}`)
			}
		}, transport.Timeout, 3 * time.Minute},
		"long ids": {func(k transport.Sink, _ string) {
			for range 1000 {
				if deliver(k, "200", strings.Repeat("x", 60000), "{}") {
					t.Error("taken")
				}
			}
		}, transport.Timeout, 3 * time.Minute},
		"conflicts for ever": {func(k transport.Sink, id string) {
			deliver(k, "409", id, `{"errorCode":409005}`)
		}, transport.Conflict, time.Second},
		"nothing to replace": {func(k transport.Sink, id string) {
			deliver(k, "412", id, `{"errorCode":412001}`)
		}, transport.Conflict, time.Second},
		"endless body": {func(k transport.Sink, id string) {
			deliver(k, "200", id, strings.Repeat("[", 97<<10))
		}, transport.Protocol, time.Second},
		"deep body": {func(k transport.Sink, id string) {
			deliver(k, "200", id, strings.Repeat(`{"certificates":`, 5000))
		}, transport.Protocol, time.Second},
		"many certificates": {func(k transport.Sink, id string) {
			deliver(k, "200", id, `{"certificates":["AAAA"`+strings.Repeat(`,"AAAA"`, 9000)+`]}`)
		}, transport.Protocol, time.Second},
		"a status that is none": {func(k transport.Sink, id string) {
			deliver(k, "999", id, `{"errorCode":"x","message":["a"],"info":7,"retryAfter":-9}`)
		}, transport.Protocol, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				s := &scripted{answer: row.answer}
				began := time.Now().Add(25 * day)
				w := overdue(t, s, 20*time.Minute)
				defer w.close()
				told := w.told()
				require.Equal(t, dpscert.StepRequesting, told[0].Step)
				require.ErrorIs(t, told[1].Err, row.kind, "%v", told[1])
				require.NotEmpty(t, told[1].Delay)
				require.LessOrEqual(t, len(s.asked), 12)
				require.Less(t, time.Since(began), 21*time.Minute)
				synctest.Wait()
				time.Sleep(100 * time.Minute) // for the goroutine of the answers
			})
		})
	}
}

// An answer of which nobody knows the request is acknowledged, so that the hub does not repeat it.
func TestAnswersOfEarlierRequestsAreAcknowledged(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := &scripted{answer: func(k transport.Sink, id string) {
			deliver(k, "200", "earlier", "{}")
			deliver(k, "400", id, `{"errorCode":400040,"message":"no","retryAfter":7}`)
		}}
		w := overdue(t, s, time.Hour)
		defer w.close()
		require.Equal(t, 2, s.settled)
		told := w.told()
		require.Len(t, told, 2)
		require.Equal(t, dpscert.StepFailed, told[1].Step)
		require.ErrorContains(t, told[1].Err, "code 400040")
	})
}

// A hub that refuses the subscription may not know the topic. Without a provisioning service the
// subscription is tried again.
func TestARefusedSubscription(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := &scripted{refuse: &transport.Error{Kind: transport.Unavailable, Op: transport.OpSubscribe}}
		w := overdue(t, s, 10*time.Minute)
		defer w.close()
		require.Empty(t, s.asked)
		told := w.told()
		require.Equal(t, dpscert.StepRetrying, told[1].Step)
		require.ErrorIs(t, told[1].Err, transport.Unavailable)
		require.GreaterOrEqual(t, told[1].Delay, 30*time.Second)
	})
}

func TestAnAnswerThatIsTooLargeIsNotRead(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := &scripted{answer: func(k transport.Sink, id string) {
			deliver(k, "400", id, `{"errorCode":400040,"more":"`+strings.Repeat("x", 97<<10)+`"}`)
		}}
		w := overdue(t, s, time.Hour)
		defer w.close()
		told := w.told()
		require.ErrorIs(t, told[1].Err, transport.Invalid)
		require.NotContains(t, told[1].Err.Error(), "400040")
	})
}

// Run returns after the renewal has ended, also when a callback is slow to return.
func TestRunJoinsTheRenewal(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		time.Sleep(25 * day)
		var returned atomic.Bool
		k := &keys{t: t}
		r := w.renewer(dpscert.Options{OpenKey: k.open, NewKey: func(ctx context.Context) (crypto.Signer, string, error) {
			<-ctx.Done()
			time.Sleep(300 * time.Millisecond)
			returned.Store(true)
			return nil, "", ctx.Err()
		}})
		s, err := r.Around(&scripted{}).Dial(t.Context(), &transport.Config{Creds: w.creds, Sink: never{t}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		require.ErrorIs(t, s.Run(ctx), context.DeadlineExceeded)
		require.True(t, returned.Load())
	})
}
