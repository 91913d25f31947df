package fileupload_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// damagedWrite changes one byte of the first write, which is the ClientHello.
type damagedWrite struct {
	net.Conn
	at   int
	once sync.Once
}

func (c *damagedWrite) Write(p []byte) (n int, err error) {
	c.once.Do(func() {
		p = append([]byte(nil), p...)
		p[c.at] ^= 0x81
	})
	return c.Conn.Write(p)
}

// A damaged byte of the ClientHello on the way to the hub and to storage costs one attempt each.
func TestADamagedClientHelloDoesNotEndAnUpload(t *testing.T) {
	for at := 0; at < 220; at += 6 {
		testkit.Bubble(t, func(t *testing.T) {
			hub, err := testbroker.New(nil)
			require.NoError(t, err)
			defer hub.Close()
			dev, err := hub.AddDevice("dev-1")
			require.NoError(t, err)
			var mu sync.Mutex
			dials := map[string]int{}
			o := &fileupload.Options{
				Network: netopt.Options{TLS: hub.ClientTLS(), Dial: func(ctx context.Context, network, addr string) (net.Conn,
					error) {
					c, err := hub.Dial(testbroker.PortHTTPS)(ctx, network, addr)
					mu.Lock()
					defer mu.Unlock()
					if dials[addr]++; err != nil || dials[addr] > 1 {
						return c, err
					}
					return &damagedWrite{Conn: c, at: at}, nil
				}}, Parallel: 1, BlockSize: 64 * kib,
			}
			u, err := fileupload.New(credsOf(t, dev), o)
			require.NoError(t, err)
			defer func() { require.NoError(t, u.Close()) }()
			_, err = u.Upload(t.Context(), "a", bytes.NewReader(content(kib)), -1)
			require.NoError(t, err, "byte %d", at)
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, dials, 2, "the hub and storage: %v", dials)
		})
	}
}

// A way that damages every body ends the upload after a few attempts, which may be metered.
func TestAWayThatDamagesAllBodiesEndsTheUpload(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		in := r.hub.Inject(fault.Fault{Kind: fault.DamageBlob, Times: -1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := r.Upload(ctx, "a", bytes.NewReader(content(kib)), -1)
		failed(t, err, transport.Protocol, "Md5Mismatch", "the data was damaged on the way")
		require.Equal(t, 1+errfilter.MaxDamage, in.Fired())
	})
}

// A service that refuses every ClientHello ends the upload after a few attempts, with the Kind of
// the alert.
func TestAServiceThatRefusesTLSEndsTheUpload(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		dials := 0
		hub, err := testbroker.New(nil)
		require.NoError(t, err)
		defer hub.Close()
		dev, err := hub.AddDevice("dev-1")
		require.NoError(t, err)
		u, err := fileupload.New(credsOf(t, dev), &fileupload.Options{
			Network: netopt.Options{TLS: hub.ClientTLS(),
				Dial: func(context.Context, string, string) (net.Conn, error) {
					dials++
					near, far := memconn.Pair("device:1", "hub:443")
					go func() { // ends with the connection
						defer far.Close()
						if _, err := far.Read(make([]byte, 4096)); err == nil {
							_, _ = far.Write([]byte{21, 3, 3, 0, 2, 2, 70})
						}
					}()
					return near, nil
				}}, RetryPolicy: retrypolicy.MaxAttempts{Total: 20, Policy: retrypolicy.Fixed{Delay: time.Second}},
		})
		require.NoError(t, err)
		defer func() { require.NoError(t, u.Close()) }()
		_, err = u.Upload(t.Context(), "a", bytes.NewReader(content(kib)), -1)
		require.ErrorIs(t, err, transport.Unsupported)
		require.ErrorContains(t, err, "TLS version not supported")
		require.ErrorIs(t, err, transport.ErrMaybeDamaged)
		require.Equal(t, 1+errfilter.MaxDamage, dials)
	})
}
