package provisioning_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// slow is the RequestTimeout of these tests.
const slow = 10 * time.Second

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

func TestAnAddressThatSwallowsConnectionsLeavesTimeForTheOthers(t *testing.T) {
	onEachCarrier(t, nil, func(t *testing.T, s *service) {
		s.network.Dial = testkit.OverAddresses(3, s.network.Dial)
		_, err := s.register(t, &provisioning.Options{Policy: retrypolicy.NoRetry{}})
		require.NoError(t, err)
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
