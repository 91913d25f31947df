package dpstransport_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/transport"
)

// An outage of the network says nothing about the assignment. A service that does not know the
// device any more, or is out of reach, does not keep it from its hub when the outage is over.
func TestAnOutageDoesNotCostTheAssignment(t *testing.T) {
	for name, row := range map[string]struct {
		fail  error
		final bool
	}{
		"not enrolled": {refuse(transport.NotFound), true},
		"refused":      {refuse(transport.Unauthorized), true},
		"forbidden":    {refuse(transport.Forbidden), true},
		"unreachable":  {refuse(transport.Network), false},
		"throttled":    {refuse(transport.Throttled), false},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				s, h, store := &service{}, &hubs{}, &memory{}
				var steps []dpstransport.Step
				tr := setup(t, s, h, 1, &dpstransport.Options{MaxFailures: 3, Store: store,
					OnEvent: func(e dpstransport.Event) { steps = append(steps, e.Step) }})
				require.NoError(t, dial(t, tr))
				s.fail = row.fail
				fail := func() {
					h.errs = []error{refuse(transport.Network)}
					require.ErrorIs(t, dial(t, tr), transport.Network)
					require.Empty(t, h.errs)
				}
				for range 3 {
					fail()
				}
				dialed := len(h.dialed)
				steps = nil
				err := dial(t, tr)
				require.True(t, errfilter.Retryable(err), "%v", err)
				require.ErrorContains(t, err, "no hub is assigned")
				require.Len(t, h.dialed, dialed)
				require.Equal(t, []dpstransport.Step{dpstransport.StepRegistering, dpstransport.StepKept}, steps)
				require.Equal(t, "hub1.example.test", tr.Assignment().Hub)

				fail() // the hub is tried again
				opened := s.opened.Load()
				if row.final {
					fail()
					fail()
				}
				require.Error(t, dial(t, tr)) // and the service
				require.Greater(t, s.opened.Load(), opened)

				require.NoError(t, dial(t, tr))
				require.Equal(t, "hub1.example.test", h.dialed[len(h.dialed)-1])
				require.Equal(t, 1, s.asked)
				require.Equal(t, "hub1.example.test", store.record.Assignment.Hub)
			})
		})
	}
}

// A refused assignment is not used again: without the service, the device has none.
func TestARefusedAssignmentIsNotKept(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{}, &hubs{}
		tr := setup(t, s, h, 1, nil)
		require.NoError(t, dial(t, tr))
		h.errs = []error{refuse(transport.NotFound)}
		require.True(t, errfilter.Retryable(dial(t, tr)))
		s.fail = refuse(transport.Network)
		require.ErrorIs(t, dial(t, tr), transport.Network)
		require.Len(t, h.dialed, 2)
		s.fail = refuse(transport.NotFound)
		err := dial(t, tr)
		require.ErrorIs(t, err, transport.NotFound)
		require.False(t, errfilter.Retryable(err))
		require.Len(t, h.dialed, 2)
	})
}

// The client waits between attempts to register, at least as long as the service and the policy of
// the registrar say.
func TestTheClientWaitsBetweenRegistrations(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{fail: &transport.Error{Kind: transport.Unavailable, Scope: transport.ScopeConnection,
			RetryAfter: 20 * time.Minute}}, &hubs{}
		tr := setup(t, s, h, 1, nil)
		began := time.Now()
		err := dial(t, tr)
		require.ErrorIs(t, err, transport.Unavailable)
		require.True(t, errfilter.Retryable(err))
		require.Equal(t, 20*time.Minute, transport.Find(err).RetryAfter)
		require.Equal(t, transport.OpDial, transport.Find(err).Op)
		require.Equal(t, transport.ScopeConnection, transport.Find(err).Scope)
		require.ErrorContains(t, err, "no hub is assigned")
		require.Zero(t, time.Since(began))
		s.fail = nil
		require.NoError(t, dial(t, tr))
	})
}

// A device that is not enrolled yet goes on, with the long delays of the registrar.
func TestAnAwaitedEnrollmentIsRetryable(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := &service{refusal: &provisioning.Answer{Status: 404, Body: []byte(`{"errorCode":404201}`)}}
		tr := setup(t, s, &hubs{}, 1, nil)
		require.False(t, errfilter.Retryable(dial(t, tr)))

		tr = setupWith(t, s, &hubs{}, &provisioning.Options{AwaitEnrollment: true}, nil)
		err := dial(t, tr)
		require.True(t, errfilter.Retryable(err), "%v", err)
		require.ErrorContains(t, err, "not enrolled")
		require.GreaterOrEqual(t, transport.Find(err).RetryAfter, 10*time.Second)
		s.refusal = nil
		require.NoError(t, dial(t, tr))
	})
}

// The limits of the client hold while the service is out of reach.
func TestAClientThatCannotRegister(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := &service{fail: refuse(transport.Network)}
		dials := device.NewDialLimiter(1, 0)
		c, err := device.New(setup(t, s, &hubs{}, 1, nil).Credentials(), setup(t, s, &hubs{}, 1, nil),
			&device.Options{OutageLimit: 10 * time.Minute, Dials: dials})
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Start())
		synctest.Wait()

		// Another client gets its turn.
		other := setup(t, &service{}, &hubs{block: true}, 1, nil)
		c2, err := device.New(other.Credentials(), other, &device.Options{Dials: dials})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, c2.Open(ctx))
		require.NoError(t, c2.Close())

		status := c.Status()
		require.Equal(t, device.StateDisconnectedRetrying, status.State)
		require.ErrorContains(t, status.Err, "no hub is assigned")
		opened := s.opened.Load()
		time.Sleep(200 * time.Millisecond)
		c.Reconnect()
		synctest.Wait()
		require.Equal(t, opened+1, s.opened.Load(), "Reconnect ends the wait")

		time.Sleep(11 * time.Minute)
		require.Equal(t, device.StateDisconnected, c.Status().State)
		require.Equal(t, device.ReasonRetryExpired, c.Status().Reason)
	})
}

// A hub that refuses the token of a clock that is not set says nothing about the assignment.
func TestAClockThatIsNotSetDoesNotCostTheAssignment(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{}, &hubs{t: t}
		sign, err := transport.SharedKey(ownKey)
		require.NoError(t, err)
		off := time.Duration(0)
		tr := connect(t, &provisioning.Identity{IDScope: "0ne00ABCDEF", RegistrationID: "reg-0001", Sign: sign,
			SecondSign: sign, Now: func() time.Time { return time.Now().Add(off) }}, s, h, nil, nil)
		h.signers[0], _ = sign(t.Context(), []byte("text"))
		require.NoError(t, dial(t, tr))
		off = -20 * 365 * 24 * time.Hour
		for range 5 {
			h.errs = []error{refuse(transport.Unauthorized)}
			require.Equal(t, transport.Unauthorized, transport.Find(dial(t, tr)).Kind)
		}
		require.Equal(t, 1, s.asked)
		require.Len(t, h.creds, 1)
	})
}

// Only failures in a row count: another one says that the name was found.
func TestFailuresToFindTheNameAreCountedInARow(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{}, &hubs{}
		tr := setup(t, s, h, 1, nil)
		require.NoError(t, dial(t, tr))
		unknown := &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection,
			Err: &net.DNSError{IsNotFound: true}}
		for range 3 {
			for range 4 {
				h.errs = append(h.errs, unknown)
			}
			h.errs = append(h.errs, refuse(transport.Network))
		}
		for range 15 {
			require.ErrorIs(t, dial(t, tr), transport.Network)
		}
		require.Empty(t, h.errs)
		require.NoError(t, dial(t, tr))
		require.Equal(t, 1, s.asked)
	})
}

// A hub that does not know the device does not know its other key either.
func TestAMissingDeviceIsNotTriedWithTheOtherKey(t *testing.T) {
	for _, kind := range []transport.Kind{transport.NotFound, transport.Forbidden} {
		testkit.In2030(t, func(t *testing.T) {
			s, h := &service{}, &hubs{}
			tr := setup(t, s, h, 2, nil)
			require.NoError(t, dial(t, tr))
			h.errs = []error{refuse(kind)}
			require.Error(t, dial(t, tr))
			require.NoError(t, dial(t, tr))
			require.Equal(t, 2, s.asked)
			require.Equal(t, []bool{true, true, true}, h.keys)
		})
	}
}

// A new device id is a move, also at the same hub.
func TestANewDeviceIDIsAMove(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{oneHub: true}, &hubs{}
		var moved []bool
		tr := setup(t, s, h, 1, &dpstransport.Options{OnEvent: func(e dpstransport.Event) {
			if e.Step == dpstransport.StepAssigned {
				moved = append(moved, e.Moved)
			}
		}})
		require.NoError(t, dial(t, tr))
		h.errs = []error{refuse(transport.NotFound)}
		require.Error(t, dial(t, tr))
		require.NoError(t, dial(t, tr))
		require.Equal(t, []bool{false, true}, moved)
		require.Equal(t, "dev-2", tr.Assignment().DeviceID)
	})
}

// An assignment that replaced a refused one is kept over an outage like any other.
func TestTheNextAssignmentIsKeptToo(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{}, &hubs{}
		tr := setup(t, s, h, 1, &dpstransport.Options{MaxFailures: 1})
		require.NoError(t, dial(t, tr))
		h.errs = []error{refuse(transport.NotFound)}
		require.Error(t, dial(t, tr))
		require.NoError(t, dial(t, tr))
		h.errs = []error{refuse(transport.Network)}
		require.Error(t, dial(t, tr))
		s.fail = refuse(transport.NotFound)
		require.True(t, errfilter.Retryable(dial(t, tr)))
		require.NoError(t, dial(t, tr))
		require.Equal(t, "hub2.example.test", h.dialed[len(h.dialed)-1])
	})
}

// A connection that lasts ends the row of refused assignments.
func TestAStableConnectionEndsTheRowOfRefusals(t *testing.T) {
	for lasts, final := range map[time.Duration]bool{59 * time.Second: true, time.Minute: false} {
		testkit.In2030(t, func(t *testing.T) {
			s, h := &service{}, &hubs{block: true}
			tr := setup(t, s, h, 1, nil)
			connected := func() {
				session, err := tr.Dial(t.Context(), &transport.Config{Creds: tr.Credentials()})
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), lasts)
				defer cancel()
				_ = session.Run(ctx)
			}
			connected()
			for range 2 {
				h.errs = []error{refuse(transport.NotFound)}
				require.True(t, errfilter.Retryable(dial(t, tr)))
			}
			connected()
			h.errs = []error{refuse(transport.NotFound)}
			require.Equal(t, final, !errfilter.Retryable(dial(t, tr)))
		})
	}
}

// A stored assignment may name a key that the device has no more.
func TestAStoredSecondKeyThatIsGone(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{}, &hubs{}
		tr := setup(t, s, h, 1, &dpstransport.Options{Store: &memory{record: &dpstransport.Record{
			Registration: "0ne00ABCDEF/registrations/reg-0001",
			Assignment:   provisioning.Assignment{Hub: "hub9.example.test", DeviceID: "dev-9", SecondKey: true}}}})
		require.NoError(t, dial(t, tr))
		require.Equal(t, []string{"hub9.example.test"}, h.dialed)
		require.Equal(t, []bool{true}, h.keys)
		require.Zero(t, s.asked)
	})
}

// A transport that panics is like one that fails: the client may connect again.
func TestATransportThatPanics(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		h := &hubs{}
		tr := setup(t, &service{}, h, 1, nil)
		for _, where := range []*bool{&h.panicsInDial, &h.panicsInRun} {
			*where = true
			require.Panics(t, func() { _ = dial(t, tr) })
			*where = false
			require.NoError(t, dial(t, tr))
		}
	})
}

// A service that fails between the two keys of a hub does not hide the reason.
func TestEventsNameTheCause(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h := &service{}, &hubs{}
		var events []dpstransport.Event
		tr := setup(t, s, h, 1, &dpstransport.Options{OnEvent: func(e dpstransport.Event) { events = append(events, e) }})
		require.NoError(t, dial(t, tr))
		h.errs = []error{refuse(transport.Forbidden)}
		require.Error(t, dial(t, tr))
		s.fail = errors.New("no route")
		require.Error(t, dial(t, tr))
		s.fail = nil
		require.NoError(t, dial(t, tr))
		require.Len(t, events, 5)
		for _, e := range events[2:4] {
			require.Equal(t, dpstransport.StepRegistering, e.Step)
			require.ErrorIs(t, e.Err, transport.Forbidden)
			require.Equal(t, "hub1.example.test", e.Hub)
		}
		require.Equal(t, dpstransport.Event{Step: dpstransport.StepAssigned, Hub: "hub2.example.test", DeviceID: "dev-1",
			Moved: true}, events[4])
	})
}

// A key that does not sign is no refusal of the hub: the assignment stays, and the failure ends the
// client as it does without a provisioning service.
func TestAKeyThatDoesNotSignIsNoRefusal(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s, h, store := &service{}, &hubs{}, &memory{}
		sign, err := transport.SharedKey(ownKey)
		require.NoError(t, err)
		broken := false
		id := &provisioning.Identity{IDScope: "0ne00ABCDEF", RegistrationID: "reg-0001",
			Sign: func(ctx context.Context, text []byte) ([]byte, error) {
				if broken {
					return nil, errors.New("the slot is empty")
				}
				return sign(ctx, text)
			}}
		var steps []dpstransport.Step
		registrar, err := provisioning.New(id, s, nil)
		require.NoError(t, err)
		tr, err := dpstransport.New(registrar, func(*transport.Credentials, *provisioning.Assignment) transport.Transport {
			return signing{h}
		}, &dpstransport.Options{Store: store, OnEvent: func(e dpstransport.Event) { steps = append(steps, e.Step) }})
		require.NoError(t, err)
		h.t = t
		h.signers[0], _ = sign(t.Context(), []byte("text"))
		require.NoError(t, dial(t, tr))
		opened := s.opened.Load()
		broken = true
		for range 4 { // the client is opened again
			err = dial(t, tr)
			require.ErrorIs(t, err, transport.Unauthorized)
			require.True(t, errfilter.Retryable(err), "%v", err)
			require.ErrorContains(t, err, "was not reached")
			err = dial(t, tr)
			require.ErrorIs(t, err, transport.Unauthorized)
			require.False(t, errfilter.Retryable(err), "%v", err)
			require.Equal(t, "hub1.example.test", tr.Assignment().Hub)
			require.False(t, errfilter.Retryable(dial(t, tr)), "asked once")
		}
		require.Equal(t, opened, s.opened.Load(), "there was nothing to send")
		require.NotContains(t, steps, dpstransport.StepOtherKey)
		broken = false
		require.NoError(t, dial(t, tr))
		require.Equal(t, []string{"hub1.example.test", "hub1.example.test"}, h.dialed)
		require.Equal(t, 1, s.asked)
	})
}

// signing signs a token before it dials, as transports do.
type signing struct{ *hubs }

func (s signing) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	if _, err := cfg.Creds.NewToken(ctx); err != nil {
		return nil, err
	}
	return s.hubs.Dial(ctx, cfg)
}
