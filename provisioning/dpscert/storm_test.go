package dpscert_test

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/transport"
)

// An authority whose certificates began long ago makes each of them due at once. The device does
// not ask in a loop.
func TestCertificatesThatAreDueAtOnce(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		var asked atomic.Int64
		root := newKey(t)
		w := newWorld(t, nil)
		w.enroll()
		require.NoError(t, w.dps.Change("reg-1", func(e *dpsdata.Enrollment) {
			e.Issue = func(csr *x509.CertificateRequest) ([][]byte, error) {
				n := asked.Add(1)
				leaf := &x509.Certificate{SerialNumber: big.NewInt(n), Subject: csr.Subject,
					NotBefore: time.Now().Add(-9 * time.Hour), NotAfter: time.Now().Add(time.Hour)}
				parent := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}}
				der, err := x509.CreateCertificate(rand.Reader, leaf, parent, csr.PublicKey, root)
				return [][]byte{der}, err
			}
		}))
		defer w.close()
		r := w.renewer(dpscert.Options{ServiceOnly: true})
		c := w.open("mqtt", r)
		time.Sleep(near)
		require.Positive(t, asked.Load())
		before := asked.Load()
		time.Sleep(10 * time.Hour)
		require.Greater(t, asked.Load(), before+10, "each is replaced in time")
		require.Less(t, asked.Load(), before+60, "requests in ten hours")
		require.True(t, time.Now().Before(w.leaf(r).NotAfter))
		require.NoError(t, c.Close())
	})
}

// broken is a transport that panics.
type broken struct{ inDial, inRun bool }

func (b *broken) Dial(context.Context, *transport.Config) (transport.Session, error) {
	if b.inDial {
		panic("dial")
	}
	return session{b}, nil
}

type session struct{ b *broken }

func (session) Info() transport.Info { return transport.Info{} }

func (s session) Run(context.Context) error {
	if s.b.inRun {
		panic("run")
	}
	return &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection}
}

func (session) Send([]transport.Item) {}
func (session) Do(*transport.Request) {}

// A transport that panics is like one that fails: the client may connect again.
func TestATransportThatPanics(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		b := &broken{}
		tr := w.renewer(dpscert.Options{}).Around(b)
		connect := func() {
			s, err := tr.Dial(t.Context(), &transport.Config{Creds: w.creds})
			require.NoError(t, err)
			require.ErrorIs(t, s.Run(t.Context()), transport.Network)
		}
		for _, where := range []*bool{&b.inDial, &b.inRun} {
			*where = true
			require.Panics(t, connect)
			*where = false
			connect()
		}
	})
}
