package agent_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

func TestAFinalReportIsRepeatedUntilItIsAcknowledged(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		sent := 0
		r.service.report = func(rep *agent.Report) error {
			if !rep.Final() {
				return fault(transport.Network)
			}
			if sent++; sent < 50 {
				return fault(transport.Unavailable)
			}
			return nil
		}
		r.offered("wf-1", "1.0", "image")
		for sent < 50 {
			r.runs(5 * time.Minute) // with resets
		}
		require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
		r.runs(5 * time.Hour)
		require.Equal(t, 50, sent)
	})
}

func TestAFinalVerdictEndsTheReports(t *testing.T) {
	for _, kind := range []transport.Kind{transport.Conflict, transport.Invalid, transport.NotFound} {
		t.Run(kind.String(), func(t *testing.T) {
			inRig(t, func(t *testing.T, r *rig) {
				sent := 0
				r.service.report = func(rep *agent.Report) error {
					if rep.Final() {
						sent++
					}
					return fault(kind)
				}
				r.offered("wf-1", "1.0", "image")
				r.runs(5 * time.Hour)
				r.runs(5 * time.Hour)
				require.Equal(t, 1, sent)
				require.Equal(t, "image", r.device.installed[0])
			})
		})
	}
}

// A failure that is not about the report does not lose it.
func TestAReportOutlivesARefusalOfTheDevice(t *testing.T) {
	const operation, connection = transport.ScopeOperation, transport.ScopeConnection
	page := &transport.StatusError{Code: 404}
	for name, failure := range map[string]error{
		"forbidden":        &transport.Error{Kind: transport.Forbidden, Scope: operation},
		"protocol":         &transport.Error{Kind: transport.Protocol, Scope: operation},
		"unknown":          &transport.Error{Kind: transport.Unknown, Scope: operation},
		"conflict":         &transport.Error{Kind: transport.Conflict, Scope: connection, Err: page},
		"invalid":          &transport.Error{Kind: transport.Invalid, Scope: connection, Err: page},
		"not found":        &transport.Error{Kind: transport.NotFound, Scope: connection, Err: page},
		"too large":        &transport.Error{Kind: transport.TooLarge, Scope: connection, Err: page},
		"unsupported":      &transport.Error{Kind: transport.Unsupported, Scope: connection, Err: page},
		"no connection":    &transport.Error{Kind: transport.NotFound, Scope: connection},
		"proxy":            &transport.Error{Kind: transport.Forbidden, Err: transport.ErrProxy},
		"unauthorized":     &transport.Error{Kind: transport.Unauthorized},
		"untrusted":        &transport.Error{Kind: transport.Untrusted},
		"closed":           &transport.Error{Kind: transport.Closed},
		"cancelled":        &transport.Error{Kind: transport.Cancelled},
		"no retry allowed": &transport.Error{Kind: transport.Throttled, RetryAfter: -1},
		"no Kind":          errors.New("injected"),
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, func(t *testing.T, r *rig) {
				sent := 0
				r.service.report = func(*agent.Report) error {
					if sent++; sent < 16 {
						return failure
					}
					return nil
				}
				r.offered("wf-1", "1.0", "image")
				r.runs(20 * time.Hour)
				require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
				require.Equal(t, 16, sent, "one attempt in an hour")
			})
		})
	}
}

// New workflows begin while reports are left, until there is no room for more of them.
func TestReportsWaitForTheServiceInOrder(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		down := true
		r.service.report = func(*agent.Report) error {
			if down {
				return fault(transport.Network)
			}
			return nil
		}
		for i := range 6 {
			r.offered(fmt.Sprint("wf-", i), fmt.Sprint("1.", i), fmt.Sprint("image ", i))
			r.runs(time.Hour)
		}
		require.Equal(t, "image 3", r.device.installed[0])
		down = false
		r.runs(3 * time.Hour)
		require.Equal(t, []string{"wf-0", "wf-1", "wf-2", "wf-3", "wf-5"}, workflows(r.service.finals()))
	})
}

// workflows returns the ids of reports.
func workflows(reports []agent.Report) (ids []string) {
	for _, r := range reports {
		ids = append(ids, r.WorkflowID)
	}
	return ids
}

func TestChecksKeepTheirPace(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		var at []time.Duration
		began := time.Now()
		r.service.check = func(n int) error {
			at = append(at, time.Since(began))
			switch n {
			case 2:
				return &transport.Error{Kind: transport.Throttled, RetryAfter: 90 * time.Second, Err: errors.New("busy")}
			case 4:
				return fault(transport.Invalid) // not worth a retry
			case 5:
				r.service.answer.RetryAfter = 2 * time.Hour
			case 6:
				r.service.answer.RetryAfter = time.Second // sooner than the program's pace
			}
			return nil
		}
		r.runs(7 * time.Hour)
		h := time.Hour
		require.Equal(t, []time.Duration{0, h, h + 90*time.Second, 2*h + 90*time.Second, 3*h + 90*time.Second,
			5*h + 90*time.Second, 6*h + 90*time.Second}, at)
	})
}

// checksAt returns when the device has asked within d, while every Check fails.
func checksAt(t *testing.T, p retrypolicy.Policy, d time.Duration) (at []time.Duration) {
	inRig(t, func(t *testing.T, r *rig) {
		r.options.Policy = p
		began := time.Now()
		r.service.check = func(int) error { at = append(at, time.Since(began)); return fault(transport.Network) }
		r.runs(d)
	})
	return at
}

// fixed is a policy with one delay.
var fixed = retrypolicy.Func(func(int, error) (bool, time.Duration) { return true, time.Minute })

func TestAPolicyThatGivesUpBeginsAgainAfterTheInterval(t *testing.T) {
	m := time.Minute
	require.Equal(t, []time.Duration{0, m, 61 * m, 62 * m, 122 * m},
		checksAt(t, retrypolicy.MaxAttempts{Total: 2, Policy: fixed}, 123*m-1))
}

func TestAPolicyWithoutDelayDoesNotMakeTheAgentSpin(t *testing.T) {
	none := retrypolicy.Func(func(int, error) (bool, time.Duration) { return true, 0 })
	require.Equal(t, []time.Duration{0, 0, 100 * time.Millisecond, 200 * time.Millisecond},
		checksAt(t, none, 250*time.Millisecond))
}

// gate is a policy that admits attempts after a delay, or not at all.
type gate struct {
	retrypolicy.Policy
	retrypolicy.Free
	admits retrypolicy.Decision
	asked  *int
}

func (g gate) Begin(retrypolicy.Start) retrypolicy.Series { return g }

func (g gate) Admit(retrypolicy.Attempt) retrypolicy.Decision {
	if *g.asked++; *g.asked == 1 {
		return g.admits
	}
	return retrypolicy.Decision{Retry: true}
}

func TestAPolicyCanHoldAttemptsBack(t *testing.T) {
	m := time.Minute
	require.Equal(t, []time.Duration{5 * m, 6 * m},
		checksAt(t, gate{Policy: fixed, admits: retrypolicy.Decision{Retry: true, Delay: 5 * m}, asked: new(int)}, 7*m-1))
	require.Equal(t, []time.Duration{60 * m, 61 * m},
		checksAt(t, gate{Policy: fixed, admits: retrypolicy.Decision{}, asked: new(int)}, 62*m-1))
}

func TestChecksOfAFleetAreSpread(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.options.Spread = 0 // a quarter of Interval
		var at []time.Duration
		began := time.Now()
		r.service.check = func(int) error { at = append(at, time.Since(began)); return nil }
		r.runs(2 * time.Hour)
		require.Equal(t, []time.Duration{30 * time.Second, time.Hour + 30*time.Second + 450*time.Second}, at,
			"half of a minute, then half of a quarter of an hour")
	})
}

func TestEtagsAreSentAgainAfterAReset(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		memo := agent.Memo{AgentInfoETag: "a1", ConfigETag: "c1", RootKeysURL: "https://keys"}
		r.service.answer.Memo = memo
		r.runs(time.Minute)
		require.Equal(t, 1, r.store.saves)
		r.runs(time.Minute)
		require.Equal(t, agent.Memo{}, r.service.queries[0].Memo)
		require.Equal(t, memo, r.service.queries[1].Memo)
		require.Equal(t, 1, r.store.saves, "the same again is not written")
	})
}

func TestCheckAsksAtOnce(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		a, err := agent.New(&r.options)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		synctest.Wait()
		require.Equal(t, transport.Conflict, transport.KindOf(a.Run(ctx)), "one Run at a time")
		a.Check()
		synctest.Wait()
		require.Len(t, r.service.queries, 2)
		a.Check()
		a.Check() // before or after the query of the first
		synctest.Wait()
		require.Contains(t, []int{3, 4}, len(r.service.queries))
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

// A callback that panics or ends its goroutine ends one Run or Onboard, not the next one.
func TestCallbacksThatPanicEndOneRun(t *testing.T) {
	for _, name := range []string{"Policy 1", "Rand 1", "Rand 2", "Rand 3", "Rand 4", "Rand 5", "Service.Wake 1"} {
		for how, fail := range map[string]func(){"panics": func() { panic("oh dear") }, "ends": runtime.Goexit} {
			t.Run(name+" "+how, func(t *testing.T) {
				inRig(t, func(t *testing.T, r *rig) {
					calls := map[string]int{}
					called := func(callback string) {
						if calls[callback]++; fmt.Sprint(callback, " ", calls[callback]) == name {
							fail()
						}
					}
					r.options.Rand = func() uint64 { called("Rand"); return 0 }
					r.options.Policy = retrypolicy.Func(func(int, error) (bool, time.Duration) {
						called("Policy")
						return true, time.Minute
					})
					r.options.Service = waker{r.service, func() { called("Service.Wake") }}
					r.service.check = func(n int) error {
						if n == 1 {
							return fault(transport.Network)
						}
						return nil
					}
					r.offered("wf-1", "1.0", "image")
					a, err := agent.New(&r.options)
					require.NoError(t, err)
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
					defer cancel()
					err = a.Run(ctx)
					require.ErrorIs(t, err, transport.Invalid)
					require.ErrorIs(t, a.Run(ctx), context.DeadlineExceeded)
					require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
				})
			})
		}
	}
}

// waker is a Service whose Wake fails.
type waker struct {
	*service
	called func()
}

func (w waker) Wake() <-chan struct{} { w.called(); return nil }

// The handler is joined, and its starts do not count, though the Store fails, too, in one of them.
func TestAPolicyThatPanicsFailsNoUpdate(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.options.Policy = retrypolicy.Func(func(int, error) (bool, time.Duration) { panic("oh dear") })
		r.service.check = func(n int) error {
			if n != 2 {
				return fault(transport.Network)
			}
			return nil
		}
		a, err := agent.New(&r.options)
		require.NoError(t, err)
		require.ErrorIs(t, a.Onboard(t.Context()), transport.Invalid)
		r.waiting("install 0")
		r.offered("wf-1", "1.0", "image")
		for run := range 5 {
			r.device.seen = func(*agent.Work) {
				if run == 3 {
					r.store.fail = func() error { return errPower }
				}
			}
			require.ErrorIs(t, r.run(2*time.Hour), transport.Invalid)
			r.store.fail = nil
		}
		r.service.check = nil
		delete(r.device.block, "install 0")
		r.runs(time.Hour)
		require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome, r.final().Result.Details)
	})
}

func TestOnboardingAsksBeforeTheRegistrationAndRunInstalls(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.offered("wf-1", "1.0", "image")
		r.service.check = func(n int) error {
			if n < 3 {
				return fault(transport.Unavailable)
			}
			return nil
		}
		a, err := agent.New(&r.options)
		require.NoError(t, err)
		require.NoError(t, a.Onboard(t.Context()))
		require.True(t, r.service.queries[2].Onboarding)
		require.Empty(t, r.device.calls, "Onboard does not install")
		r.service.offer = nil
		r.runs(time.Minute)
		require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
	})
}

func TestOnboardingIsBounded(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		a, err := agent.New(&r.options)
		require.NoError(t, err)
		r.service.check = func(int) error { return fault(transport.Network) }
		began := time.Now()
		require.Error(t, a.Onboard(t.Context()))
		require.LessOrEqual(t, time.Since(began), agent.OnboardTime)

		r.service.check = func(int) error { return fault(transport.Forbidden) }
		began = time.Now()
		require.Error(t, a.Onboard(t.Context()))
		require.Zero(t, time.Since(began), "a verdict that is not repeated")
	})
}

func TestOnboardingDoesNotWaitForAnUpdate(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.waiting("download 0")
		r.offered("wf-1", "1.0", "image")
		a, err := agent.New(&r.options)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, a.Onboard(ctx))
		require.Zero(t, time.Since(began))
		cancel()
		<-done
		require.Equal(t, []string{"installed 0", "download 0"}, r.device.calls)
	})
}

func TestNothingIsDoneBeforeItIsStored(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.offered("wf-1", "1.0", "image")
		full := errors.New("the disk is full")
		r.store.fail = func() error { return full }
		require.ErrorIs(t, r.run(time.Hour), full)
		require.Equal(t, 6, r.store.saves)
		require.Empty(t, r.device.calls)
		require.Empty(t, r.service.reports)
		r.store.fail = func() error {
			if r.store.saves%2 == 0 {
				return full
			}
			return nil
		}
		r.runs(time.Hour)
		require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome, "a write is tried again")
	})
}

// A Store that is nearly too small costs texts for people, or the update, and never the agent.
func TestASmallStoreCostsTextsOrTheUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := map[agent.Outcome]int{}
		for room := 150; room < 4000; room += 50 {
			r := newRig(t)
			r.store.room = room
			r.device.fail = func(call string) error {
				if call == "apply 0" {
					return errors.New(strings.Repeat("why ", 300))
				}
				return nil
			}
			r.offered("wf-1", "1.0", "image")
			r.runs(time.Hour)
			f := r.final()
			require.Equal(t, agent.OutcomeFailed, f.Result.Outcome)
			if f.Result.Origin == agent.OriginAgentDependency {
				require.Empty(t, r.device.calls)
				ended[agent.OutcomeSkipped]++
				continue
			}
			require.Contains(t, r.device.calls, "cancel 0")
			if f.Result.Details == "" {
				ended[agent.OutcomeCanceled]++
			} else {
				ended[agent.OutcomeSucceeded]++
			}
		}
		require.Len(t, ended, 3, "each of the three ends")
	})
}

func TestAStoreWithoutRoomForWhatTheServiceSendsEndsNothing(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.store.room = 1000
		r.service.answer = agent.Answer{Memo: agent.Memo{RootKeysURL: strings.Repeat("u", 3000)}}
		r.offered("wf-1", "1.0", "image")
		r.runs(time.Hour + time.Minute)
		require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
		require.Equal(t, r.service.answer.Memo, r.service.queries[1].Memo, "in RAM it is kept")
	})
	inRig(t, func(t *testing.T, r *rig) {
		r.store.room = 40
		r.service.answer.Cancel = "of a Store that was lost"
		r.runs(2*time.Hour + time.Minute)
		require.Len(t, r.service.queries, 3)
		require.Empty(t, r.service.finals(), "nothing is sent that is not stored")
		r.store.room = 0
		r.runs(time.Minute)
		require.Len(t, r.service.finals(), 1)
	})
}

// A reset loses a memo that did not fit into the Store. The address of the root keys comes with the
// next answer, so nothing is verified before.
func TestALostAddressOfRootKeysIsAwaited(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		inRig(t, func(t *testing.T, r *rig) {
			keys := "https://" + strings.Repeat("k", 3000)
			r.store.room = 1000
			r.service.answer = agent.Answer{Memo: agent.Memo{RootKeysURL: keys}}
			r.files.content[keys] = []byte("keys")
			known := false
			r.options.RootKeys = func([]byte) error { known = true; return nil }
			verify := r.options.Verify
			r.options.Verify = func(m []byte, s string) error {
				if !known {
					return errors.New("the key is unknown")
				}
				return verify(m, s)
			}
			broken := true
			r.files.fail = func(int) error {
				if broken {
					return fault(transport.Unavailable)
				}
				return nil
			}
			r.offered("wf-1", "1.0", "image")
			r.runs(time.Second)
			broken = false
			if cancelled {
				r.service.offer, r.service.answer.Cancel = nil, "wf-1"
			}
			r.runs(time.Hour)
			want := agent.OutcomeSucceeded
			if cancelled {
				want = agent.OutcomeCanceled
			}
			require.Equal(t, want, r.final().Result.Outcome, r.final().Result.Details)
		})
	}
}

func TestAClosedWakeChannelIsQuiet(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.service.wake = make(chan struct{})
		close(r.service.wake)
		r.runs(3*time.Hour + time.Minute)
		require.Len(t, r.service.queries, 4)
	})
}

func TestWrongOptionsAreNamed(t *testing.T) {
	for want, change := range map[string]func(o *agent.Options){
		"Service":       func(o *agent.Options) { o.Service = nil },
		"Handlers":      func(o *agent.Options) { o.Handlers = nil },
		"Verify":        func(o *agent.Options) { o.Verify = nil },
		"Fetch":         func(o *agent.Options) { o.Fetch = nil },
		"Store":         func(o *agent.Options) { o.Store = nil },
		"Profile":       func(o *agent.Options) { o.Profile = -1 },
		"Interval":      func(o *agent.Options) { o.Interval = -1 },
		"Properties":    func(o *agent.Options) { o.Properties = nil },
		"not empty":     func(o *agent.Options) { o.Properties = agent.Properties{{}} },
		"different":     func(o *agent.Options) { o.Properties = agent.Properties{{Name: "a"}, {Name: "A"}} },
		"to 5 properti": func(o *agent.Options) { o.Properties = append(make(agent.Properties, 5), o.Properties...) },
	} {
		o := newRig(t).options
		change(&o)
		_, err := agent.New(&o)
		require.ErrorContains(t, err, want)
		require.Equal(t, transport.Invalid, transport.KindOf(err))
	}
	_, err := agent.New(nil)
	require.Error(t, err)
}
