package device_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// hooked is a policy with memory whose calls go to functions, nil for none.
type hooked struct {
	retrypolicy.Policy
	admit  func(a retrypolicy.Attempt) retrypolicy.Decision
	report func(v retrypolicy.Verdict, a retrypolicy.Attempt)
	begin  func()
	end    func()
}

func (h hooked) Begin(retrypolicy.Start) retrypolicy.Series {
	if h.begin != nil {
		h.begin()
	}
	return hookedSeries{h}
}

// hookedSeries is a series of a hooked policy.
type hookedSeries struct{ hooked }

func (s hookedSeries) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	if s.admit != nil {
		return s.admit(a)
	}
	return retrypolicy.Decision{Retry: true}
}

func (s hookedSeries) Report(v retrypolicy.Verdict, a retrypolicy.Attempt) {
	if s.report != nil {
		s.report(v, a)
	}
}

func (s hookedSeries) End() {
	if s.end != nil {
		s.end()
	}
}

// witness is a policy with memory; it records its calls.
type witness struct {
	retrypolicy.Policy
	admit func(a retrypolicy.Attempt) retrypolicy.Decision

	mu       sync.Mutex
	told     []string
	inFlight map[transport.Scope]int
	series   int // that have not ended
	acked    int
}

func (w *witness) note(text string) {
	w.mu.Lock()
	w.told = append(w.told, text)
	w.mu.Unlock()
}

func (w *witness) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told
	w.told = nil
	return told
}

func (w *witness) Begin(start retrypolicy.Start) retrypolicy.Series {
	if start.Key != "hub.example.test" {
		w.note("begin with key " + start.Key)
	}
	w.mu.Lock()
	w.series++
	w.mu.Unlock()
	return &witnessed{Series: retrypolicy.Inner(w.Policy, start), w: w}
}

// witnessed is a series of a witness.
type witnessed struct {
	retrypolicy.Series
	w        *witness
	inFlight bool
	scope    transport.Scope
	over     bool
}

func (s *witnessed) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	s.w.note(fmt.Sprintf("decide %v %d", a.Scope, a.Retry))
	return s.Series.Decide(a)
}

func (s *witnessed) Report(v retrypolicy.Verdict, a retrypolicy.Attempt) {
	if !s.inFlight || s.scope != a.Scope {
		s.w.note("report without an attempt")
	}
	s.inFlight = false
	s.w.mu.Lock()
	s.w.inFlight[a.Scope]--
	if v == retrypolicy.VerdictSucceed && a.Scope == transport.ScopeOperation {
		s.w.acked++
	}
	s.w.mu.Unlock()
	outcome := "ok"
	if v != retrypolicy.VerdictSucceed {
		outcome = a.Kind.String()
		if v == retrypolicy.VerdictFail {
			outcome += ", terminal"
		}
	}
	s.w.note(fmt.Sprintf("report %v %d: %s", a.Scope, a.Retry, outcome))
	s.Series.Report(v, a)
}

func (s *witnessed) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	if s.inFlight {
		s.w.note("an attempt during another")
	}
	d := retrypolicy.Decision{Retry: true}
	if s.w.admit != nil {
		d = s.w.admit(a)
	}
	if d.Retry && d.Delay == 0 {
		s.inFlight, s.scope = true, a.Scope
		s.w.mu.Lock()
		s.w.inFlight[a.Scope]++
		s.w.mu.Unlock()
	}
	return d
}

func (s *witnessed) End() {
	s.w.mu.Lock()
	if s.inFlight {
		s.w.inFlight[s.scope]--
	}
	s.w.series--
	s.w.mu.Unlock()
	if s.over {
		s.w.note("a second end")
	}
	s.over = true
	s.Series.End()
}

// balanced checks that each admitted try and each series ended once.
func (w *witness) balanced(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(t, map[transport.Scope]int{transport.ScopeOperation: 0, transport.ScopeConnection: 0}, w.inFlight)
	require.Zero(t, w.series, "series that have not ended")
}

func newWitness(p retrypolicy.Policy) *witness {
	return &witness{Policy: p, inFlight: map[transport.Scope]int{transport.ScopeOperation: 0,
		transport.ScopeConnection: 0}}
}

func TestThePolicyObservesTheEndOfEachAttemptToConnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: failing(lost(transport.Network), lost(transport.Unavailable), nil, nil, lost(transport.Unauthorized),
			lost(transport.Unauthorized))}
		w := newWitness(retrypolicy.Fixed{Delay: time.Second})
		c := opened(t, f, &device.Options{RetryPolicy: w, StableTime: 10 * time.Second})
		synctest.Wait()
		require.Equal(t, []string{
			"report connection 0: network failure", "decide connection 1", "report connection 1: service unavailable",
			"decide connection 2",
		}, w.take(), "an outcome is told before the question about it; a success not before the connection is stable")

		f.last().kill <- lost(transport.Network) // too early
		synctest.Wait()
		require.Equal(t, []string{"report connection 2: network failure", "decide connection 3"}, w.take(),
			"a connection that does not last is a failure")
		time.Sleep(time.Second + 10*time.Second)
		synctest.Wait()
		require.Equal(t, []string{"report connection 3: ok"}, w.take())

		f.lose(transport.Network, 0)
		require.Equal(t, []string{"decide connection 1"}, w.take(), "one that lasted was told already")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, "report connection 1: unauthorized, terminal", w.take()[0])
		require.NoError(t, c.Close())
		w.balanced(t)
	})
}

func TestAnAttemptThatCloseCutsShortIsReported(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		w := newWitness(retrypolicy.Fixed{Delay: time.Second})
		c := opened(t, f, &device.Options{RetryPolicy: w})
		require.NoError(t, c.Close())
		require.Equal(t, []string{"report connection 0: ok"}, w.take())
		w.balanced(t)
	})
}

func TestThePolicyObservesTheEndOfEachMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		throttle := true
		f := &fake{verdict: func(conn int, it transport.Item) error {
			switch {
			case it.Msg.ID == "3" && throttle:
				throttle = false
				return refused(transport.Unavailable)
			case it.Msg.ID == "5":
				return refused(transport.TooLarge)
			case it.Msg.ID == "9" && conn == 1:
				return errHold
			}
			return nil
		}}
		w := newWitness(retrypolicy.Fixed{Delay: time.Second})
		c, _ := client(t, f, &device.Options{MessagePolicy: w})
		enqueue(t, c, 0, 9)
		open(t, c)
		synctest.Wait()
		told := w.take()
		require.Less(t, slices.Index(told, "report operation 0: service unavailable"), slices.Index(told,
			"decide operation 1"), "an outcome is told before the question about it")
		sums := map[string]int{}
		for _, text := range told {
			if outcome, ok := strings.CutPrefix(text, "report operation 0: "); ok {
				sums[outcome]++
			}
		}
		require.Equal(t, map[string]int{"ok": 7, "service unavailable": 1, "too large, terminal": 1}, sums)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"report operation 1: ok"}, w.take(), "the retry of message 3")
		f.last().kill <- lost(transport.Network)
		require.NoError(t, c.Flush(t.Context()))
		synctest.Wait()
		require.Equal(t, []string{"report operation 0: network failure", "report operation 0: ok"}, w.take(),
			"message 9 was in flight")
		require.NoError(t, c.Close())
		w.balanced(t)
		require.Equal(t, 9, w.acked)
	})
}

func TestAGateHoldsMessagesAndKeepsTheirOrder(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		w := newWitness(retrypolicy.NoRetry{})
		var next time.Time
		w.admit = func(a retrypolicy.Attempt) retrypolicy.Decision { // one in 100 ms
			if wait := next.Sub(a.Now); wait > 0 {
				return retrypolicy.Decision{Retry: true, Delay: wait}
			}
			next = a.Now.Add(100 * time.Millisecond)
			return retrypolicy.Decision{Retry: true}
		}
		c := opened(t, f, &device.Options{MessagePolicy: w})
		began := time.Now()
		var want []string
		for i := range 50 {
			want = append(want, strconv.Itoa(i))
			require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: want[i]}, nil))
		}
		time.Sleep(950 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, want[:10], f.ids())
		f.last().kill <- lost(transport.Network) // a new connection does not bypass the gate
		require.NoError(t, c.Flush(t.Context()))
		require.Equal(t, 4900*time.Millisecond, time.Since(began))
		require.Equal(t, want, f.ids())
		require.NoError(t, c.Close())
		w.balanced(t)
	})
}

func TestAGateThatRefusesEndsTheMessageAlone(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		w := newWitness(retrypolicy.NoRetry{})
		n := 0
		w.admit = func(retrypolicy.Attempt) retrypolicy.Decision {
			n++
			return retrypolicy.Decision{Retry: n != 2}
		}
		c, _ := client(t, f, &device.Options{MessagePolicy: w})
		var receipts [4]device.Receipt
		for i := range receipts {
			require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: strconv.Itoa(i)}, &receipts[i]))
		}
		open(t, c)
		for i := range receipts {
			err := receipts[i].Wait(t.Context())
			if i != 1 {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, transport.RetryExpired)
			require.ErrorIs(t, err, retrypolicy.ReasonRejected)
		}
		require.Equal(t, []string{"0", "2", "3"}, f.ids())
		require.NoError(t, c.Close())
		w.balanced(t)
	})
}

func TestAGateHoldsAttemptsToConnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: failing(lost(transport.Network))}
		w := newWitness(retrypolicy.Fixed{Delay: time.Second})
		asked := 0
		w.admit = func(a retrypolicy.Attempt) retrypolicy.Decision {
			if asked++; asked%2 == 1 {
				return retrypolicy.Decision{Retry: true, Delay: 5 * time.Second}
			}
			return retrypolicy.Decision{Retry: true}
		}
		began := time.Now()
		c := opened(t, f, &device.Options{RetryPolicy: w, MessagePolicy: retrypolicy.NoRetry{}})
		require.Equal(t, []time.Time{began.Add(5 * time.Second), began.Add(11 * time.Second)}, f.dialTimes())
		require.NoError(t, c.Close())
		w.balanced(t)
	})
}

func TestAGateThatRefusesEndsTheAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: failing(lost(transport.Unavailable))}
		w := newWitness(retrypolicy.Fixed{Delay: time.Second})
		w.admit = func(a retrypolicy.Attempt) retrypolicy.Decision { return retrypolicy.Decision{Retry: a.Retry == 0} }
		c, _ := client(t, f, &device.Options{RetryPolicy: w})
		err := c.Open(t.Context())
		require.ErrorIs(t, err, transport.RetryExpired)
		require.ErrorIs(t, err, retrypolicy.ReasonRejected)
		require.ErrorIs(t, err, transport.Unavailable, "the failure before it is kept")
		require.Len(t, f.dialTimes(), 1)
		w.balanced(t)
	})
}

func TestANewPolicyTakesOverMessagesInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hold := true
		f := &fake{verdict: func(int, transport.Item) error {
			if hold {
				return errHold
			}
			return nil
		}}
		old, next := newWitness(retrypolicy.Immediately{}), newWitness(retrypolicy.Immediately{})
		c := opened(t, f, &device.Options{RetryPolicy: old, StableTime: time.Second})
		time.Sleep(2 * time.Second)
		enqueue(t, c, 0, 2)
		synctest.Wait()
		require.NoError(t, c.SetRetryPolicy(next))
		synctest.Wait()
		require.Equal(t, []string{"report connection 0: ok"}, old.take())
		hold = false
		f.last().kill <- lost(transport.Network)
		require.NoError(t, c.Flush(t.Context()))
		lost := "report operation 0: network failure"
		require.Equal(t, []string{lost, lost, lost}, old.take(), "the policy that admitted them learns their end")
		require.NoError(t, c.Close())
		old.balanced(t)
		next.balanced(t)
	})
}
