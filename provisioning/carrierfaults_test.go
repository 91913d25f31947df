package provisioning_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// faultRow is a fault and what a registration makes of it, on each carrier that has the fault.
type faultRow struct {
	name  string
	fault fault.Fault
	// kind is the Kind of the registration's error; 0: it succeeds.
	kind transport.Kind
	// failure is the Kind of the one failure before the success; 0: there is none.
	failure transport.Kind
	// or is what some carriers report instead of failure.
	or transport.Kind
	// least is how long the registration takes at least, besides the 3 s before the poll.
	least time.Duration
	// hub and device are the assignment. Empty: those of a registration without a fault.
	hub, device string
}

// slow is the RequestTimeout of these tests.
const slow = 10 * time.Second

var faultRows = []faultRow{
	{name: "throttled", fault: fault.Fault{Kind: fault.RefuseProvisioning, RetryAfter: 20 * time.Second},
		failure: transport.Throttled, least: 20 * time.Second},
	{name: "busy", fault: fault.Fault{Kind: fault.RefuseProvisioning, Status: 503, RetryAfter: 20 * time.Second},
		failure: transport.Unavailable, least: 20 * time.Second},
	{name: "busy, without a delay", fault: fault.Fault{Kind: fault.RefuseProvisioning, Status: 503},
		failure: transport.Unavailable, least: time.Second / 2},
	{name: "forbidden", fault: fault.Fault{Kind: fault.RefuseProvisioning, Status: 403}, kind: transport.Forbidden},
	{name: "bad request", fault: fault.Fault{Kind: fault.RefuseProvisioning, Status: 400}, kind: transport.Invalid},
	{name: "token refused", fault: fault.Fault{Kind: fault.RefuseProvisioning, Status: 401, ErrorCode: 401002},
		kind: transport.Unauthorized},
	{name: "conflict", fault: fault.Fault{Kind: fault.RefuseProvisioning, Status: 409}, failure: transport.Conflict},
	{name: "cut before", fault: fault.Fault{Kind: fault.DropBeforeProvisioning}, failure: transport.Network},
	{name: "cut after", fault: fault.Fault{Kind: fault.DropAfterProvisioning}, failure: transport.Network},
	{name: "no answer", fault: fault.Fault{Kind: fault.SwallowProvisioning}, failure: transport.Timeout, least: slow},
	{name: "slow answer", fault: fault.Fault{Kind: fault.SlowProvisioning, Delay: 8 * time.Second},
		least: 8 * time.Second},
	{name: "two answers", fault: fault.Fault{Kind: fault.DuplicateProvisioning}},
	{name: "answer with another id", fault: fault.Fault{Kind: fault.MisnameProvisioning}, failure: transport.Timeout,
		least: slow},
	{name: "answer before the acknowledgement", fault: fault.Fault{Kind: fault.AnswerBeforePuback}},
	{name: "properties in another order", fault: fault.Fault{Kind: fault.ReorderProperties}},
	{name: "half an answer", fault: fault.Fault{Kind: fault.GarbleProvisioning}, failure: transport.Protocol},
	{name: "no JSON", fault: fault.Fault{Kind: fault.GarbleProvisioning, Bytes: []byte("<html>")},
		failure: transport.Protocol},
	{name: "huge answer", fault: fault.Fault{Kind: fault.GarbleProvisioning, Bytes: []byte(strings.Repeat("x", 1<<20))},
		failure: transport.Protocol, or: transport.Network},
	{name: "no operation id", fault: fault.Fault{Kind: fault.OmitOperationID}},
	{name: "no retry-after", fault: fault.Fault{Kind: fault.WrongRetryAfter}},
	{name: "retry-after 0", fault: fault.Fault{Kind: fault.WrongRetryAfter, Text: "0"}},
	{name: "retry-after -1", fault: fault.Fault{Kind: fault.WrongRetryAfter, Text: "-1"}},
	{name: "retry-after in words", fault: fault.Fault{Kind: fault.WrongRetryAfter, Text: "soon"}},
	{name: "disabled", fault: fault.Fault{Kind: fault.WrongStatus, Text: "disabled"}, kind: transport.Forbidden},
	{name: "blacklisted", fault: fault.Fault{Kind: fault.WrongStatus, Text: "blacklisted"}, kind: transport.Forbidden},
	{name: "failed", fault: fault.Fault{Kind: fault.WrongStatus, Text: "failed"}, kind: transport.Invalid},
	{name: "unassigned", fault: fault.Fault{Kind: fault.WrongStatus, Text: "unassigned"}},
	{name: "still assigning", fault: fault.Fault{Kind: fault.WrongStatus, Text: "assigning"}, least: 3 * time.Second},
	{name: "another device id", fault: fault.Fault{Kind: fault.WrongDeviceID, Text: "other"}, device: "other"},
	{name: "another hub", fault: fault.Fault{Kind: fault.WrongHub, Text: "gone.example.test"}, hub: "gone.example.test"},
	{name: "unknown profile", fault: fault.Fault{Kind: fault.WrongProfile, Text: "mqttV9"}, kind: transport.Unsupported},
}

// Each fault of the service, in the register and in the poll, on each carrier.
func TestEveryFaultOfTheService(t *testing.T) {
	covered := map[fault.Kind]bool{
		fault.WrongChain: true, // TestAChainForAnotherKey
		// of a TPM
		fault.WrongChallenge: true, fault.RepeatChallenge: true, fault.WrongAuthenticationKey: true,
	}
	for _, row := range faultRows {
		covered[row.fault.Kind] = true
	}
	for _, k := range fault.ProvisioningKinds() {
		require.True(t, covered[k], "%v has a row", k)
	}
	for _, row := range faultRows {
		t.Run(row.name, func(t *testing.T) {
			for _, route := range []fault.RouteKind{fault.RouteRegister, fault.RouteOperation} {
				onEachCarrier(t, nil, func(t *testing.T, s *service) { s.requireFault(t, &row, route) })
			}
		})
	}
}

// requireFault registers with a fault.
func (s *service) requireFault(t *testing.T, row *faultRow, route fault.RouteKind) {
	f := row.fault
	if f.Kind.Protocols()&s.protocol == 0 {
		return
	}
	assignment := f.Kind == fault.WrongDeviceID || f.Kind == fault.WrongHub || f.Kind == fault.WrongProfile
	if assignment && route == fault.RouteRegister {
		return
	}
	f.Route = route
	injected := s.Inject(f)
	var failures []transport.Kind
	began := time.Now()
	a, err := s.register(t, &provisioning.Options{RequestTimeout: slow, OnEvent: func(e provisioning.Event) {
		if e.Step == provisioning.StepRetrying {
			failures = append(failures, transport.KindOf(e.Err))
		}
	}})
	require.Equal(t, 1, injected.Fired())
	require.Equal(t, row.kind, transport.KindOf(err), "%v", err)
	if again := s.protocol == hubdata.HTTP && route == fault.RouteOperation && row.failure == transport.Network; again {
		require.Empty(t, failures, "net/http repeats a GET that a used connection lost")
	} else if row.failure != 0 {
		require.Len(t, failures, 1)
		require.True(t, failures[0] == row.failure || row.or != 0 && failures[0] == row.or, "%v", failures[0])
	} else {
		require.Empty(t, failures)
	}
	if err != nil {
		require.Equal(t, transport.OpRegister, transport.Find(err).Op)
		return
	}
	require.GreaterOrEqual(t, time.Since(began), row.least)
	want := provisioning.Assignment{Hub: "hub1.example.test", DeviceID: "reg-0001"}
	if row.hub != "" {
		want.Hub = row.hub
	}
	if row.device != "" {
		want.DeviceID = row.device
	}
	require.Equal(t, want, provisioning.Assignment{Hub: a.Hub, DeviceID: a.DeviceID})
}

// The delay that the service asks for is a minimum, as a number and as a date.
func TestTheDelayOfTheServiceIsAMinimum(t *testing.T) {
	for text, least := range map[string]time.Duration{
		"25": 25 * time.Second, "Tue, 01 Jan 2030 00:01:00 GMT": 55 * time.Second,
	} {
		t.Run(text, func(t *testing.T) {
			onEachCarrier(t, nil, func(t *testing.T, s *service) {
				if s.name[:4] == "mqtt" && text != "25" {
					return // a topic has seconds
				}
				s.Inject(fault.Fault{Kind: fault.WrongRetryAfter, Text: text})
				began := time.Now()
				_, err := s.register(t, nil)
				require.NoError(t, err)
				require.GreaterOrEqual(t, time.Since(began), least)
				require.Less(t, time.Since(began), 2*time.Minute)
			})
		})
	}
}

// A chain for another key is refused by the package that makes a certificate of it.
func TestAChainForAnotherKey(t *testing.T) {
	onEachCarrier(t, nil, func(t *testing.T, s *service) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		csr, err := dpscert.Request("reg-0001", key)
		require.NoError(t, err)
		authority := testbroker.NewCertAuthority("issuer")
		require.NoError(t, s.Change("reg-0001", func(e *dpsdata.Enrollment) { e.Issue = authority.Issuer(time.Hour) }))
		for _, wrong := range []bool{false, true} {
			if wrong {
				s.Inject(fault.Fault{Kind: fault.WrongChain})
			}
			a, err := s.register(t, &provisioning.Options{CSR: csr})
			require.NoError(t, err)
			require.NotEmpty(t, a.Chain)
			_, err = dpscert.Certificate(a.Chain, key)(t.Context())
			require.Equal(t, wrong, err != nil, "%v", err)
		}
	})
}

// cutConn is a connection that breaks at a call of Read or Write.
type cutConn struct {
	net.Conn
	left *atomic.Int64 // calls until the break
}

var errCut = errors.New("cut by the test")

func (c *cutConn) step() error {
	if c.left.Add(-1) < 0 {
		_ = c.Conn.Close()
		return errCut
	}
	return nil
}

func (c *cutConn) Read(p []byte) (int, error) {
	if err := c.step(); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *cutConn) Write(p []byte) (int, error) {
	if err := c.step(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// The first connection breaks in any step of a registration. The registration goes on with another
// one.
func TestADisconnectInEachStep(t *testing.T) {
	onEachCarrier(t, nil, func(t *testing.T, s *service) {
		dial := s.network.Dial
		for n := range int64(1000) {
			dials := 0
			var left atomic.Int64
			left.Store(n)
			s.network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dial(ctx, network, addr)
				if dials++; dials > 1 {
					return c, err
				}
				return &cutConn{c, &left}, err
			}
			var failures []error
			_, err := s.register(t, &provisioning.Options{RequestTimeout: slow, Policy: retrypolicy.Fixed{Delay: time.Second},
				OnEvent: func(e provisioning.Event) {
					if e.Step == provisioning.StepRetrying {
						failures = append(failures, e.Err)
					}
				}})
			require.NoError(t, err, "step %d", n)
			for _, failure := range failures {
				require.ErrorIs(t, failure, transport.Network, "step %d", n)
			}
			if len(failures) == 0 && left.Load() > 0 {
				t.Logf("%d steps", n)
				require.Greater(t, n, int64(5))
				return
			}
			require.LessOrEqual(t, len(failures), 1, "step %d", n)
		}
		t.Fatal("the connection always broke")
	})
}

// A registration ends with its context wherever it stands, and at once.
func TestTheContextEndsARegistration(t *testing.T) {
	onEachCarrier(t, nil, func(t *testing.T, s *service) {
		for name, prepare := range map[string]func(){
			"dial": func() {
				s.network.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
			},
			"poll":     func() { s.Inject(fault.Fault{Kind: fault.SwallowProvisioning, Route: fault.RouteOperation}) },
			"register": func() { s.Inject(fault.Fault{Kind: fault.SwallowProvisioning}) },
		} {
			kept := s.network.Dial
			prepare()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			began := time.Now()
			_, err := s.client(t, s.identity(t, "reg-0001", regKey), nil).Register(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.ErrorIs(t, err, transport.Cancelled, name)
			require.Less(t, time.Since(began), 6*time.Second, name)
			s.network.Dial = kept
		}
	})
}

// A session closes within a second, also when the network takes no data. For AMQP the latter is
// tested in real time, with its package.
func TestASessionClosesWithinASecond(t *testing.T) {
	onEachCarrier(t, nil, func(t *testing.T, s *service) {
		dial := s.network.Dial
		var conn interface {
			Hold(on bool)
			SetSendBuffer(n int)
		}
		s.network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			conn, _ = c.(interface {
				Hold(on bool)
				SetSendBuffer(n int)
			})
			return c, err
		}
		for _, stuck := range []bool{false, true} {
			if stuck && s.protocol == hubdata.AMQP {
				return
			}
			id := s.identity(t, "reg-0001", regKey)
			token, err := transport.SignToken(t.Context(), id.Sign, s.IDScope()+"/registrations/reg-0001", "registration",
				time.Now().Add(time.Hour))
			require.NoError(t, err)
			session, err := s.open(&s.network).Open(t.Context(), &provisioning.Login{Endpoint: id.Endpoint,
				IDScope: id.IDScope, RegistrationID: id.RegistrationID, APIVersion: "2019-03-31", Token: token, Timeout: slow,
				Now: time.Now})
			require.NoError(t, err)
			answer, err := session.Exchange(t.Context(), &provisioning.Request{Body: []byte(`{"registrationId":"reg-0001"}`)})
			require.NoError(t, err)
			require.Contains(t, string(answer.Body), "assigning")
			synctest.Wait()
			if stuck {
				require.NotNil(t, conn)
				conn.SetSendBuffer(1)
				conn.Hold(true)
			}
			began := time.Now()
			session.Close()
			require.LessOrEqual(t, time.Since(began), time.Second)
		}
	})
}
